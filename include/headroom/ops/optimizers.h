// Optimizer steps over lists of parameters, and gradient norms.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "headroom/core/implementation.h"

namespace headroom::ops {

// AdamW (Loshchilov & Hutter, "Decoupled weight decay regularization", Alg. 2).
struct AdamWOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
  double gradient_scale = 1.0;  // gradients are multiplied by this first (clipping)
  Implementation implementation = Implementation::automatic;
};

// Updates `parameters` and their first and second moments `m` and `v` in place. `step` is counted from 1. All tensors
// must have the same dtype and device. May overwrite the gradients. Throws Error if the lists differ in length or
// shapes, or if step < 1.
void adamw_step(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& gradients,
                const std::vector<at::Tensor>& m, const std::vector<at::Tensor>& v, std::int64_t step,
                const AdamWOptions& options);

// Returns the Euclidean norm over all gradients; undefined ones are skipped. On the CPU it does not depend on the
// number of threads. On other devices it synchronises once.
double global_norm(const std::vector<at::Tensor>& gradients);

// square_blocks() returns the sums of squares of a CPU gradient in blocks of kSquareBlock elements and of the
// remainder, in order. global_norm() adds them in this order, so ranks whose shards start at multiples of kSquareBlock
// can reproduce it bit for bit; an empty remainder contributes 0.0.
inline constexpr std::int64_t kSquareBlock = 1 << 15;
std::vector<double> square_blocks(const at::Tensor& gradient);

// Returns the sum of squares of each CPU gradient. global_norm()^2 is their sum in order.
std::vector<double> square_sums(const std::vector<at::Tensor>& gradients);

// Muon (Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024) over batches of matrices:
//   m <- mu m + (1 - mu) g,  u = mu m + (1 - mu) g    (Nesterov momentum)
//   W <- (1 - lr decay) W - lr 0.2 sqrt(max(rows, columns)) orthogonal(u)
// The factor makes updates about as large as AdamW's (Liu et al., "Muon is scalable for LLM training", 2025, section
// 2.2), so that both can use the same learning rate and weight decay.
struct MuonOptions {
  double learning_rate = 1e-3;
  double momentum = 0.95;
  double weight_decay = 0.0;
  double gradient_scale = 1.0;  // gradients are multiplied by this first (clipping)
  bool bfloat16 = false;        // run the iteration's matrix multiplications in bfloat16
  Implementation implementation = Implementation::automatic;
};

// Updates `parameters` and their momentum `m` in place, each [batch, rows, columns]; each matrix of a batch is
// orthogonalised separately. Throws Error if the lists differ in length or a tensor is not 3-D.
void muon_step(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& gradients,
               const std::vector<at::Tensor>& m, const MuonOptions& options);

// Returns the matrices [batch, rows, columns] approximately orthogonalised by five Newton-Schulz iterations from X /
// |X|:
//   X <- a X + b (X X^T) X + c (X X^T)^2 X,  a, b, c = 3.4445, -4.7750, 2.0315
// Singular values of at least |X| / 100 end between about 0.7 and 1.2. A zero matrix stays zero.
at::Tensor orthogonal(const at::Tensor& matrices, const MuonOptions& options = {});

}  // namespace headroom::ops
