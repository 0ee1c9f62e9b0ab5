// Measured numbers put into words that stay true whatever was measured.
#pragma once

#include <string>

#include "headroom/analysis/compare.h"

namespace headroom::analysis {

// "2.8% lower than dense_h8 (7.58)", "3.1% higher than ...", "the same as ...": the headline figures.
std::string headline_against(const ComparedRun& run, const ComparedRun& other);

// What a conclusion about several runs of one seed each ends with; empty for a single run.
std::string caution(const std::vector<ComparedRun>& runs);

// "0.38 times the attention MACs, the same attention memory, 1.20 times the training time, the same peak memory and
// 0.97 times the parameters": of `run`, in units of `other`'s.
std::string costs_against(const ComparedRun& run, const ComparedRun& other);

}  // namespace headroom::analysis
