// One table of cases for each operator (src/engine/ops/<operator>/cases.h): what it is tested, differentiated and timed
// with, on every device, by every backend.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <string>
#include <vector>

#include "headroom/core/implementation.h"

namespace headroom::ops {

// How tensors lie in memory.
enum class Layout {
  dense,
  swapped,   // the last axis is not contiguous
  by_token,  // the axes of heads and tokens (of a matrix: rows and columns) lie the other way round
  gaps       // rows begin at an odd number and lie an odd number apart, with NaNs in between
};
at::Tensor lay(const at::Tensor& t, Layout layout);
// " swapped"; nothing for dense.
std::string name_of(Layout layout);

// What a case does not say itself. Activations have the type; parameters float32, or float64 with activations of that.
struct Setting {
  at::ScalarType type = at::kFloat;
  at::Device device = at::kCPU;
};

// Draws a case's tensors.
struct Draw {
  Setting setting;
  Layout layout = Layout::dense;
  // Of the normal distribution, the activations' numbers or the parameters'.
  at::Tensor activation(at::IntArrayRef shape, double size = 1.0) const;
  at::Tensor parameter(at::IntArrayRef shape, double size = 1.0) const;
  at::Tensor placed(const at::Tensor& t, at::ScalarType type) const;  // `t` of that type, on the device, laid out
  at::ScalarType parameter_type() const { return setting.type == at::kDouble ? at::kDouble : at::kFloat; }
};

// A case with numbers in it. Without a derivative, `leaves` are still what the result is computed from.
struct Problem {
  std::vector<at::Tensor> leaves;  // everything that a gradient goes to
  std::function<at::Tensor(const std::vector<at::Tensor>& leaves, Implementation implementation)> run;
  bool differentiable = true;
};

// How near the fused version is to the reference in float64, as a share of a tensor's largest number. Each table says
// why.
struct Precision {
  at::ScalarType type;
  double bound;
};

// What a case is for: the comparison of every backend with the reference; whole sequences, for what feeds them token by
// token; the bounds of bfloat16, number by number, at sizes that fill tiles; the benchmark; or, where every backend
// refuses, the reference alone.
enum class Role { tested, sequence, bfloat16, timed, reference_only };

}  // namespace headroom::ops
