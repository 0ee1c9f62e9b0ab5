// Which configs may be compared, and in what a run folder and a request differ.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tools/compare/compare.h"

#include "headroom/config/config.h"

namespace headroom::compare {

// What must change for a run folder's config to be the one asked for: "train.steps is 1000 there, 200 here"; empty
// when nothing. Keys that a run fills in by itself (precision "auto", threads 0) and those that only say how often
// to write agree with anything.
std::string first_difference(const config::Config& there, const config::Config& here);

// Throws UserError for configs whose figures cannot be compared, as far as the configs tell: of different tasks,
// kinds of tokenizers made from text, or train.evaluate_tokens; the message begins with the command. check_runs()
// compares their data.
void refuse_unlike(const std::vector<NamedConfig>& configs, std::string_view command);

// Throws UserError: the tokenizers of models `a` and `b` are another each.
[[noreturn]] void refuse_tokenizers(std::string_view command, std::string_view a, std::string_view b,
                                    std::string_view tokenizer_a, std::string_view tokenizer_b);

// Other differences of data, budget and training as sentences, apart from those of the keys in `expected`.
std::vector<std::string> treated_unlike(const std::vector<NamedConfig>& configs, const std::set<std::string>& expected);

}  // namespace headroom::compare
