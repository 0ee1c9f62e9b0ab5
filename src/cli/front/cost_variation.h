// cost --vary: what models cost while one key of theirs grows.
#pragma once

#include <string>
#include <vector>

#include "headroom/config/config.h"
#include "training/cost/report.h"

namespace headroom::cli {

// Every config with every value: named "dense_h8 n_heads=4". Throws UserError where a value does not suit a config.
std::vector<cost::NamedConfig> varied(const std::vector<cost::NamedConfig>& configs,
                                      const config::Variation& variation);

// Parameters, multiply-accumulates of the attention as the papers count them and of a whole training step, over the
// values: a line each of `configs`, of which `all` are the variations. An SVG.
std::string drawn(const std::vector<cost::NamedConfig>& configs, const config::Variation& variation,
                  const std::vector<cost::NamedConfig>& all);

}  // namespace headroom::cli
