// AdamW (Loshchilov & Hutter, "Decoupled weight decay regularization", Alg. 2) over a list of parameters.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "headroom/core/implementation.h"

namespace headroom::ops {

struct AdamWOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
  double gradient_scale = 1.0;  // gradients are multiplied by it first (clipping)
  Implementation implementation = Implementation::automatic;
};

// One step (counted from 1) in place on `parameters`, first and second moments `m`, `v`; all of one dtype and
// device, shape by shape alike. Gradients may be changed. Throws Error when the lists differ in length.
void adamw_step(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& gradients,
                const std::vector<at::Tensor>& m, const std::vector<at::Tensor>& v, std::int64_t step,
                const AdamWOptions& options);

// Euclidean norm of all gradients taken together; on the CPU the same for every number of threads. Waits for the device
// once.
double global_norm(const std::vector<at::Tensor>& gradients);

// What the square of one of the CPU is the sum of, one after the other: of kSquareBlock numbers each, and of the rest.
// Parts of it that begin at a multiple of kSquareBlock have the same, apart from rests of nothing, 0.0.
inline constexpr std::int64_t kSquareBlock = 1 << 15;
std::vector<double> square_blocks(const at::Tensor& gradient);

// What its square is the sum of, one after the other, for gradients of the CPU: the square of each one's norm.
std::vector<double> square_sums(const std::vector<at::Tensor>& gradients);

}  // namespace headroom::ops
