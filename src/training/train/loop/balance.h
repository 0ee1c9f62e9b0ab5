// From counts of an evaluation's tokens to how evenly they use the experts.
#pragma once

#include <ATen/ATen.h>

#include "headroom/nn/context.h"
#include "history.h"

namespace headroom::train {

Balance balance_of(const at::Tensor& counts);  // an expert each
std::map<std::string, Balance> balance_of(const nn::ExpertUsage& usage);

}  // namespace headroom::train
