// What several analyses ask of a model's layers.
#pragma once

#include <string>
#include <string_view>

#include "headroom/config/model_options.h"

namespace headroom::inspect {

// "layer3.attention" of "layer3.attention.probs".
std::string layer_of(std::string_view value);

// Why a model has no matrices of weights of each query and key; empty: it has.
std::string refuse_without_scores(const config::ModelOptions& options);

}  // namespace headroom::inspect
