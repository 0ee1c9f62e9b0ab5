// cost --vary: the costs of models over the values of a key.
#pragma once

#include <string>
#include <vector>

#include "foundation/config/variation.h"
#include "training/cost/report.h"

namespace headroom::cli {

// Every config with every value, named "dense_h8 n_heads=4". Throws UserError if a config does not allow a value.
std::vector<cost::NamedConfig> varied(const std::vector<cost::NamedConfig>& configs,
                                      const config::Variation& variation);

// An SVG of parameters, multiply-accumulates of attention (paper accounting) and of a training step over the values: a
// line for each of `configs`; `all` are their variations.
std::string drawn(const std::vector<cost::NamedConfig>& configs, const config::Variation& variation,
                  const std::vector<cost::NamedConfig>& all);

}  // namespace headroom::cli
