// Balance losses on their way from the layers into a model's loss.
#pragma once

#include <map>
#include <string>

#include "headroom/config/model_options.h"
#include "headroom/models/loss.h"
#include "headroom/nn/context.h"

namespace headroom::models {

// Balance losses before their coefficients, by kind, summed over layers.
using BalanceLosses = std::map<std::string, at::Tensor>;

// Weighs `losses`, as a pass collected them, by the options' coefficients, and hands them to the caller that asked for
// them in `context`. Throws Error for a kind without a coefficient.
Loss with_balance(at::Tensor cross_entropy, BalanceLosses losses, const config::ModelOptions& options,
                  const nn::Context& context);

}  // namespace headroom::models
