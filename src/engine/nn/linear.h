// Building blocks of all layers: matmuls in the compute type, norms, activations, dropout.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "headroom/config/model_options.h"
#include "headroom/nn/context.h"
#include "headroom/nn/parameters.h"
#include "headroom/ops/linear.h"

namespace headroom::nn {

// Returns `tensor` in the context's compute type; unchanged if none is set.
at::Tensor to_compute(const at::Tensor& tensor, const Context& context);

// Multiplies rows [N, i] by matrix [i, o]; batch-invariant if the context requests it.
at::Tensor matmul_rows(const at::Tensor& rows, const at::Tensor& matrix, const std::optional<at::Tensor>& bias,
                       const Context& context);
at::Tensor expert_matmul(const ops::ExpertLinearInputs& inputs, const Context& context);
// torch's matmul, used by the routers of heads; batch-invariant if the context requests it.
at::Tensor torch_matmul(const at::Tensor& rows, const at::Tensor& matrix, const Context& context);

// Makes an elementwise function batch-invariant, since vectorised loops round the last elements of a tensor
// differently. Calls make(part) once for all N rows, or once per row if the context is batch-invariant; part(tensor)
// returns the rows of a tensor [N, ...] that the call computes.
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

// Returns x [..., i] times w plus bias, [..., o]. The first `in_axes` axes of w are flattened to i and the others to o:
// `in_axes` is 1 for w [i, o] or [d_model, H, e], and 2 for [H, e, d_model]. The bias may be undefined.
at::Tensor linear(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias, const Context& context,
                  std::int64_t in_axes = 1);

// A linear layer: parameters "w<suffix>" [in, out] and "b<suffix>" [out].
struct Linear {
  struct Options {
    std::int64_t in = 0, out = 0;
    Distribution init;                           // for the matrix under the `scaled` rule
    std::optional<Distribution> bias_init = {};  // by default zeros
    bool bias = true;
    bool into_stream = false;  // see Fan
  };

  Linear() = default;  // no layer
  Linear(std::string_view suffix, const Options& options, const Builder& build);
  bool defined() const { return w.defined(); }
  at::Tensor operator()(const at::Tensor& x, const Context& context) const { return linear(x, w, b, context); }

  at::Tensor w, b;
};

// Applies linear() to the same x once per matrix [i, ...] and bias, in one parallel region if batch-invariant.
struct Weights {
  at::Tensor w, b;
};
std::vector<at::Tensor> linear_of_each(const at::Tensor& x, const std::vector<Weights>& all, const Context& context);

at::Tensor activate(const at::Tensor& x, config::Activation activation);
at::Tensor activate(const at::Tensor& x, config::Activation activation, const Context& context);

// When traced, returns `t` such that its gradient is contiguous: the meta functions of elu_backward and
// softplus_backward return the strides of t, but the kernels return the strides of the gradient.
at::Tensor with_dense_gradient(const at::Tensor& t);

// Applies dropout with probability p in training. The mask is a function of context.random and `use`, a name that is
// unique within the scope (see random.h). The leading axis of x must be the batch's rows.
at::Tensor dropout(const at::Tensor& x, double p, const Context& context, std::string_view use);

// Applies activate(), then dropout. With relu, both are one fused pass that saves only its result.
at::Tensor activate(const at::Tensor& x, config::Activation activation, double p, const Context& context,
                    std::string_view use);

// Adds a sublayer's output, which may be in the compute type, to the residual stream.
at::Tensor add_to_stream(const at::Tensor& stream, const at::Tensor& output);

// Normalises the last axis. Layer norm: (x - mean) / sqrt(var + eps) * scale + bias. RMS: x / sqrt(mean(x^2) + eps) *
// scale.
class NormLayer {
 public:
  NormLayer(config::Norm kind, double epsilon, std::int64_t width, const Builder& build);
  at::Tensor operator()(const at::Tensor& x) const;                          // in x's type
  at::Tensor operator()(const at::Tensor& x, const Context& context) const;  // in the compute type
  at::ScalarType type() const { return scale_.scalar_type(); }               // of the residual stream

 private:
  at::Tensor to_type(const at::Tensor& x, at::ScalarType type) const;

  config::Norm kind_;
  double epsilon_;
  at::Tensor scale_, bias_;
};

}  // namespace headroom::nn
