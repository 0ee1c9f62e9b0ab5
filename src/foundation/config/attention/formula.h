// Formulas of scores, for those who change a model's options.
#pragma once

#include "headroom/config/attention/score_options.h"

namespace headroom::config {

// Whether the score of the start values is s for every pair, and all keys are visible.
bool starts_as_product(const DotOptions& options, std::int64_t n_heads, std::int64_t d_head);

}  // namespace headroom::config
