// Helpers that all models share: parameter initialisation, random inputs, balance losses.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <string>

#include "engine/nn/linear.h"
#include "headroom/config/model_options.h"
#include "headroom/models/model.h"
#include "headroom/nn/parameters.h"

namespace headroom::models {

// Returns a builder with the initialisation rule of the options.
nn::Builder make_builder(const config::ModelOptions& o, nn::Parameters& parameters, const nn::ParameterSource& source);

// A linear layer initialised like torch's: matrix and bias uniform within +-1 / sqrt(in).
nn::Linear::Options uniform_linear(std::int64_t in, std::int64_t out, bool bias = true);

// Returns integers in [0, below), int64 on the CPU; a function of the seed.
at::Tensor random_ids(std::int64_t below, at::IntArrayRef shape, std::uint64_t seed);

// Balance losses before their coefficients, by kind, summed over layers.
using BalanceLosses = std::map<std::string, at::Tensor>;

// Returns the loss with `losses` weighted by the options' coefficients; also moves `losses` to context.losses if that
// is set. Throws Error for a kind without a coefficient.
Loss with_balance(at::Tensor cross_entropy, BalanceLosses losses, const config::ModelOptions& options,
                  const nn::Context& context);

}  // namespace headroom::models
