// The page's sections, each as HTML; empty where there is nothing to show.
#pragma once

#include <string>

#include "headroom/compare/compare.h"

namespace headroom::compare {

std::string result_section(const CompareResult& result);    // the table, and what was tuned
std::string value_section(const CompareResult& result);     // a sweep: the figure against each varied key
std::string learning_section(const CompareResult& result);  // curves
std::string cost_section(const CompareResult& result);      // bars, and quality against cost
std::string sample_section(const CompareResult& result);    // what the models write
std::string configuration_section(const CompareResult& result);
std::string circumstances_section(const CompareResult& result);

// A drawing with its caption; a wide one has a row to itself.
std::string figure(const std::string& caption, const std::string& remark, const std::string& chart, bool wide = false);

// "7.37", of several seeds "7.370 ± 0.052".
std::string headline_text(const ComparedRun& run);

}  // namespace headroom::compare
