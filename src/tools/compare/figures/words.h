// Measured numbers put into words that stay true whatever was measured.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "statistics.h"
#include "tools/compare/compare.h"

namespace headroom::compare {

// Of the headline figure, seed by seed; nothing where either has fewer than two.
std::optional<Interval> headline_difference(const ComparedRun& run, const ComparedRun& other);

// The headline figures: "2.8% lower than dense_h8 (7.58)", "3.1% higher than ...", "the same as ..."; of several seeds
// "2.8% lower than dense_h8 (7.58; paired difference -0.21 [-0.30, -0.12])", or "not significantly different from ..."
// where the interval includes zero. `called` stands for the other's name.
std::string headline_against(const ComparedRun& run, const ComparedRun& other, std::string_view called);
std::string headline_against(const ComparedRun& run, const ComparedRun& other);

// What intervals over so many seeds are worth, after another sentence; empty where they show something.
std::string_view caution_of_seeds(std::size_t seeds);

// What a conclusion about several runs ends with: how often each was trained; empty for a single run.
std::string caution(const std::vector<ComparedRun>& runs, std::string_view what = "model");

// "switchhead takes 0.38 times the attention MACs and 1.20 times the training time of dense; no difference in attention
// memory, peak memory and parameters."
std::string costs_against(const ComparedRun& run, const ComparedRun& other);

}  // namespace headroom::compare
