// Ridge regression from sums over tokens.
#pragma once

#include <ATen/ATen.h>

namespace headroom::convert {

// Solves (gram + penalty) w = cross in float64, the penalty 1e-3 of the mean of gram's diagonal. `constant`: the last
// feature is a constant, which is not penalised.
at::Tensor ridge_regression(const at::Tensor& gram, const at::Tensor& cross, bool constant = false);

}  // namespace headroom::convert
