// A case is a problem size and options of an operator; it has name(), problem(setting) and precisions(). Each operator
// has one table (<operator>_cases.h). On every device, every backend is compared with the reference.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "headroom/core/implementation.h"

namespace headroom::ops {

enum class Layout {
  dense,
  swapped,   // the last axis is not contiguous
  by_token,  // the axes of heads and tokens (or rows and columns) are swapped in memory
  gaps       // rows have an odd offset and an odd stride, with NaNs in between
};
at::Tensor in_layout(const at::Tensor& t, Layout layout);
// Returns the end of a case's name, such as " swapped"; "" for dense.
std::string name_of(Layout layout);

// The conditions that a case runs under. `type` is the activations' dtype. Parameters are float64 if activations are,
// else float32.
struct Setting {
  at::ScalarType type = at::kFloat;
  at::Device device = at::kCPU;
};

// Draws the tensors of a case.
struct Draw {
  Setting setting;
  Layout layout = Layout::dense;
  // Return normally distributed values with standard deviation `size`.
  at::Tensor activation(at::IntArrayRef shape, double size = 1.0) const;
  at::Tensor parameter(at::IntArrayRef shape, double size = 1.0) const;
  // Returns `t` with this dtype, on the setting's device, in the layout.
  at::Tensor placed(const at::Tensor& t, at::ScalarType type) const;
  at::ScalarType parameter_type() const { return setting.type == at::kDouble ? at::kDouble : at::kFloat; }
};

// The tensors of a case. run() computes the result from tensors like `leaves`.
struct Problem {
  std::vector<at::Tensor> leaves;  // inputs; if differentiable, the inputs with a gradient
  std::function<at::Tensor(const std::vector<at::Tensor>& leaves, Implementation implementation)> run;
  bool differentiable = true;
};

// The allowed error of a fused implementation against the float64 reference, relative to a tensor's largest element.
// Each table derives its bounds.
struct Precision {
  at::ScalarType type;
  double bound;
};

// Returns every case of the table once for each layout.
template <class Case>
std::vector<Case> in_layouts(const std::vector<Case>& table, std::initializer_list<Layout> layouts) {
  std::vector<Case> all;
  for (Case c : table) {
    for (const Layout layout : layouts) {
      c.layout = layout;
      all.push_back(c);
    }
  }
  return all;
}

enum class Role {
  tested,          // every backend is compared with the reference
  sequence,        // whole sequences, for tests that feed them token by token
  bfloat16,        // compared in bfloat16, at sizes that fill tiles
  reference_only,  // every backend refuses
};

}  // namespace headroom::ops
