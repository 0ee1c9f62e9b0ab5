#pragma once

#include <ATen/ATen.h>

namespace headroom::inspect {

// [..]: how many singular values of matrices [.., m, n] are at least `threshold`, computed in float64.
at::Tensor matrix_ranks(const at::Tensor& matrices, double threshold);

}  // namespace headroom::inspect
