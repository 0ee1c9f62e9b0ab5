// cost --vary: the costs of models as functions of a key.
#pragma once

#include <string>
#include <vector>

#include "headroom/config/config.h"
#include "training/cost/report.h"

namespace headroom::cli {

// Returns every config with every value, named "dense_h8 n_heads=4". A value such as "4:8" is 4 for the first config
// and 8 for the second. Throws UserError if a config does not allow a value, or if there is not one for each config.
std::vector<cost::NamedConfig> varied(const std::vector<cost::NamedConfig>& configs,
                                      const config::Variation& variation);

// Returns a page with the parameters, the multiply-accumulates of attention (paper accounting) and those of a training
// step against the values of the first config, with one line for each of `configs`; `all` are their variations.
std::string drawn(const std::vector<cost::NamedConfig>& configs, const config::Variation& variation,
                  const std::vector<cost::NamedConfig>& all);

}  // namespace headroom::cli
