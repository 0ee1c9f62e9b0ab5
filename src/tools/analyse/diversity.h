// How different the circuits of a layer's heads are (DCMHA, Figure 5; Cordonnier et al. 2020).
//
// Letters: n matrices M_i = l_i r_i^T of rank at most e, d d_model.
#pragma once

#include <ATen/ATen.h>

#include <vector>

namespace headroom::inspect {

// What a head's circuit is made of: every l times every r^T is one of its matrices. [d, e] each.
struct Circuit {
  std::vector<at::Tensor> left, right;
};

// Cumulative share [d] of the squared size of all matrices, side by side as [d, n d], that their first principal
// components capture.
at::Tensor captured_variance(const std::vector<Circuit>& heads);

// 0: all matrices are one and the same but for a factor; 1: orthogonal to each other. What the first principal
// component of the n matrices, each taken for a vector of length 1, leaves of them, as a share of the most that it can
// leave. NaN where there is but one.
double diversity(const std::vector<Circuit>& heads);

}  // namespace headroom::inspect
