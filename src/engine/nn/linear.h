// Small pieces that every part uses: products in the compute type, norms, activations, dropout.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "headroom/config/model_options.h"
#include "headroom/nn/context.h"
#include "headroom/nn/parameters.h"
#include "headroom/ops/expert_linear.h"

namespace headroom::nn {

// Both in the context's compute type; unchanged without one.
at::Tensor to_compute(const at::Tensor& tensor, const Context& context);

// Products as the context wants them: row [N, i] by row where rows are apart.
at::Tensor product(const at::Tensor& rows, const at::Tensor& matrix, const std::optional<at::Tensor>& bias,
                   const Context& context);
at::Tensor expert_product(const ops::ExpertLinearInputs& inputs, const Context& context);
// The same by torch's own product: routers of heads have always had it.
at::Tensor plain_product(const at::Tensor& rows, const at::Tensor& matrix, const Context& context);

// make(part), [N, ...] of tensors of N rows that `make` takes by part(tensor): of all rows at once or, where rows are
// apart, of each by itself. Functions of single numbers need it: vectors of numbers and what is left over at the end of
// a tensor are computed in two ways.
template <class Make>
at::Tensor by_rows(const at::Tensor& like, const Context& context, const Make& make) {
  if (!context.batch_invariant || !like.is_cpu() || like.size(0) == 1) {
    return make([](const at::Tensor& t) { return t; });
  }
  std::vector<at::Tensor> rows;
  for (std::int64_t row = 0; row < like.size(0); ++row) {
    rows.push_back(make([row](const at::Tensor& t) { return t.narrow(0, row, 1); }));
  }
  return at::cat(rows);
}

// x [..., i] times w, whose leading axes are folded to i and whose trailing axes are the result's: w [i, o] or
// [d_model, H, e] with `in_axes` 1, [H, e, d_model] with 2. An undefined bias is none. Result [..., o].
at::Tensor linear(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias, const Context& context,
                  std::int64_t in_axes = 1);

// A matrix and a bias with their product: parameters "w<suffix>" [in, out] and "b<suffix>" [out].
struct Linear {
  struct Options {
    std::int64_t in = 0, out = 0;
    Start start;                           // the matrix's under the `scaled` rule
    std::optional<Start> bias_start = {};  // zeros without
    bool bias = true;
    bool into_stream = false;  // Fan
  };

  Linear() = default;  // none
  Linear(std::string_view suffix, const Options& options, const Builder& build);
  bool defined() const { return w.defined(); }
  at::Tensor operator()(const at::Tensor& x, const Context& context) const { return linear(x, w, b, context); }

  at::Tensor w, b;
};

at::Tensor activate(const at::Tensor& x, config::Activation activation);
at::Tensor activate(const at::Tensor& x, config::Activation activation, const Context& context);

// Zeroes elements with probability p and scales the rest, while training. Which ones follows from context.random and
// `use`, a name of its own for each use of a scope (see nn/random.h); x begins with the batch's rows.
at::Tensor dropout(const at::Tensor& x, double p, const Context& context, std::string_view use);

// activate(), then dropout: with relu both are one pass that remembers its result only.
at::Tensor activate(const at::Tensor& x, config::Activation activation, double p, const Context& context,
                    std::string_view use);

// Layer norm: (x - mean) / sqrt(var + eps) * scale + bias. RMS: x / sqrt(mean(x^2) + eps) * scale. Last axis.
class NormLayer {
 public:
  NormLayer(config::Norm kind, double epsilon, std::int64_t width, const Builder& build);
  at::Tensor operator()(const at::Tensor& x) const;

 private:
  config::Norm kind_;
  double epsilon_;
  at::Tensor scale_, bias_;
};

}  // namespace headroom::nn
