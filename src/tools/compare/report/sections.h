// The page's sections, each as HTML; empty where there is nothing to show.
#pragma once

#include <string>

#include "tools/compare/compare.h"

namespace headroom::compare {

std::string result_section(const CompareResult& result);    // the table, and what was tuned
std::string value_section(const CompareResult& result);     // a sweep: the figure against each key and the cost
std::string scaling_section(const CompareResult& result);   // families: loss against compute
std::string learning_section(const CompareResult& result);  // curves
std::string cost_section(const CompareResult& result);      // a table of bars
std::string sample_section(const CompareResult& result);    // what the models write
std::string configuration_section(const CompareResult& result);
std::string circumstances_section(const CompareResult& result);

// Drawings with their captions; empty where there are no intervals, and where all runs cost the same.
std::string difference_chart(const std::vector<ComparedRun>& runs);
std::string quality_against_cost(const std::vector<ComparedRun>& runs);

// A drawing with its caption.
std::string figure(const std::string& caption, const std::string& remark, const std::string& chart);

// "7.37", of several seeds "7.370 ± 0.052".
std::string headline_text(const ComparedRun& run);

}  // namespace headroom::compare
