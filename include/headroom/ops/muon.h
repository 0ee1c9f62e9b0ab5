// Muon (Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024) over batches of matrices:
//   m <- mu m + (1 - mu) g,  u = mu m + (1 - mu) g                             momentum as Nesterov has it
//   W <- (1 - lr decay) W - lr 0.2 sqrt(max(rows, columns)) orthogonal(u)
// The factor makes an update as large as AdamW's usually are (Liu et al., "Muon is scalable for LLM training", 2025,
// section 2.2), so that learning rate and decay of one serve the other.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "headroom/core/implementation.h"

namespace headroom::ops {

struct MuonOptions {
  double learning_rate = 1e-3;
  double momentum = 0.95;
  double weight_decay = 0.0;
  double gradient_scale = 1.0;  // gradients are multiplied by it first (clipping)
  bool bfloat16 = false;        // the iteration's products, which need no more precision
  Implementation implementation = Implementation::automatic;
};

// One step in place on `parameters` and their momentum `m`, each [batch, rows, columns]: the matrices of a batch are by
// themselves. Throws Error when the lists differ in length or a tensor has other axes.
void muon_step(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& gradients,
               const std::vector<at::Tensor>& m, const MuonOptions& options);

// The matrices [batch, rows, columns] with their singular values brought near 1, between about 0.7 and 1.2 where they
// were no smaller than a hundredth of the matrix's Euclidean norm, by five Newton-Schulz iterations from X / |X|,
//   X <- a X + b (X X^T) X + c (X X^T)^2 X,  a, b, c = 3.4445, -4.7750, 2.0315
// Zeros stay zeros.
at::Tensor orthogonal(const at::Tensor& matrices, const MuonOptions& options = {});

}  // namespace headroom::ops
