#include "linear.h"

#include "engine/ops/linear/dense_matmul.h"
#include "engine/ops/many_rows.h"
#include "engine/ops/one_pass.h"
#include "engine/ops/shapes.h"
#include "foundation/core/transformed.h"
#include "headroom/core/error.h"
#include "headroom/ops/dropout.h"
#include "headroom/ops/linear.h"
#include "random.h"

namespace headroom::nn {

at::Tensor to_compute(const at::Tensor& tensor, const Context& context) {
  return context.compute_dtype ? ops::in_type(tensor, *context.compute_dtype) : tensor;
}

at::Tensor matmul_rows(const at::Tensor& rows, const at::Tensor& matrix, const std::optional<at::Tensor>& bias,
                       const Context& context) {
  return (context.batch_invariant ? ops::linear_batch_invariant : ops::linear)(rows, matrix, bias,
                                                                               context.implementation);
}

at::Tensor expert_matmul(const ops::ExpertLinearInputs& inputs, const Context& context) {
  return (context.batch_invariant ? ops::expert_linear_batch_invariant : ops::expert_linear)(inputs,
                                                                                             context.implementation);
}

at::Tensor torch_matmul(const at::Tensor& rows, const at::Tensor& matrix, const Context& context) {
  if (ops::ManyRows::active()) {
    return matmul_rows(rows, matrix, std::nullopt, context);
  }
  return by_rows(rows, context, [&](const auto& part) { return part(rows).mm(matrix); });
}

namespace {

// Flattens the leading axes of w, which together have `in` elements, to a matrix's rows, and the others to its columns.
ops::MatrixAndBias as_matrix(const at::Tensor& w, const at::Tensor& bias, std::int64_t in, const Context& context) {
  const at::Tensor given = to_compute(w, context);
  return {given.dim() == 2 ? given : ops::reshaped(given, {in, -1}),
          bias.defined() ? std::optional(ops::reshaped(to_compute(bias, context), {-1})) : std::nullopt};
}

// Gives the rows y [N, o] the leading axes of x.
at::Tensor as_shaped(const at::Tensor& y, const at::Tensor& x) {
  std::vector<c10::SymInt> shape = x.sym_sizes().vec();
  shape.back() = y.sym_size(1);
  return ops::reshaped(y, shape);
}

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias, const Context& context,
                  std::int64_t in_axes) {
  std::int64_t in = 1;
  for (std::int64_t axis = 0; axis < in_axes; ++axis) {
    in *= w.size(axis);
  }
  const ops::MatrixAndBias weights = as_matrix(w, bias, in, context);
  const at::Tensor rows = ops::reshaped(to_compute(x, context), {-1, in});
  return as_shaped(matmul_rows(rows, weights.matrix, weights.bias, context), x);
}

std::vector<at::Tensor> linear_of_each(const at::Tensor& x, const std::vector<Weights>& all, const Context& context) {
  if (!context.batch_invariant) {
    return transformed(all, [&](const Weights& one) { return linear(x, one.w, one.b, context); });
  }
  const std::int64_t in = x.size(-1);
  const at::Tensor rows = ops::reshaped(to_compute(x, context), {-1, in});
  const std::vector<at::Tensor> results = ops::linear_batch_invariant_of_each(
      rows, transformed(all, [&](const Weights& one) { return as_matrix(one.w, one.b, in, context); }),
      context.implementation);
  return transformed(results, [&](const at::Tensor& y) { return as_shaped(y, x); });
}

Linear::Linear(std::string_view suffix, const Options& o, const Builder& build)
    : w(build.matrix(fmt::format("w{}", suffix), {o.in, o.out}, o.init,
                     {.in = o.in, .out = o.out, .into_stream = o.into_stream})) {
  if (o.bias) {
    b = build.bias(fmt::format("b{}", suffix), {o.out}, o.in, o.bias_init);
  }
}

at::Tensor activate(const at::Tensor& x, config::Activation activation) {
  switch (activation) {
    case config::Activation::relu:
      return x.relu();
    case config::Activation::gelu:
      return at::gelu(x);
    case config::Activation::gelu_tanh:
      return at::gelu(x, "tanh");
    case config::Activation::silu:
      return at::silu(x);
  }
  fail("activation: unknown");
}

at::Tensor activate(const at::Tensor& x, config::Activation activation, const Context& context) {
  if (activation == config::Activation::relu) {  // exact, so always batch-invariant
    return activate(x, activation);
  }
  const auto f = [&](const at::Tensor& some) { return activate(some, activation); };
  const bool takes_gaps = activation != config::Activation::gelu;
  return context.batch_invariant && x.is_cpu() ? ops::elementwise_by_rows(x, f, takes_gaps) : ops::elementwise(x, f);
}

namespace {

at::Tensor drop(const at::Tensor& x, double p, bool relu, const Context& context, std::string_view use) {
  if (context.from_generator) {
    return at::dropout(relu ? x.relu() : x, p, /*train=*/true);
  }
  const std::uint64_t seed = use_seed(context, use);
  const Randomness& random = *context.random;
  return ops::dropout(by_row(x, random), {.p = p, .seed = seed, .relu = relu, .first_row = random.first_row},
                      context.implementation)
      .view(x.sizes());
}

}  // namespace

at::Tensor with_dense_gradient(const at::Tensor& t) {
  return ops::has_values(t) ? t : t.flatten().view_symint(t.sym_sizes());
}

at::Tensor dropout(const at::Tensor& x, double p, const Context& context, std::string_view use) {
  return context.training && p > 0.0 ? drop(x, p, /*relu=*/false, context, use) : x;
}

at::Tensor activate(const at::Tensor& x, config::Activation activation, double p, const Context& context,
                    std::string_view use) {
  if (context.training && p > 0.0 && activation == config::Activation::relu) {
    return drop(x, p, /*relu=*/true, context, use);
  }
  return dropout(activate(x, activation, context), p, context, use);
}

NormLayer::NormLayer(config::Norm kind, double epsilon, std::int64_t width, const Builder& build)
    : kind_(kind), epsilon_(epsilon), scale_(build.constant("scale", {width}, 1.0)) {
  if (kind == config::Norm::layer) {
    bias_ = build.constant("bias", {width}, 0.0);
  }
}

at::Tensor NormLayer::operator()(const at::Tensor& x) const {
  return to_type(x, x.scalar_type());
}

at::Tensor NormLayer::operator()(const at::Tensor& x, const Context& context) const {
  return to_type(x, context.compute_dtype.value_or(x.scalar_type()));
}

at::Tensor NormLayer::to_type(const at::Tensor& x, at::ScalarType type) const {
  if (kind_ == config::Norm::layer) {
    return ops::in_type(at::layer_norm(x, scale_.sizes(), scale_, bias_, epsilon_), type);
  }
  const bool is_single = x.scalar_type() == at::kFloat && scale_.scalar_type() == at::kFloat;
  if (is_single && (type == at::kFloat || type == at::kBFloat16) && ops::suits_one_pass(x) && x.is_contiguous()) {
    return ops::rms_norm_once(x, scale_, epsilon_, type);
  }
  return ops::in_type(at::rms_norm(x, scale_.sizes(), scale_, epsilon_), type);
}

at::Tensor add_to_stream(const at::Tensor& stream, const at::Tensor& output) {
  const bool widens = stream.scalar_type() == at::kFloat && output.scalar_type() == at::kBFloat16;
  // Sizes are read only once both are known to have values: torch.export traces this with symbolic sizes.
  if (widens && ops::suits_one_pass(stream) && ops::suits_one_pass(output) && stream.is_contiguous() &&
      output.is_contiguous() && stream.sizes() == output.sizes()) {
    return ops::add_once(stream, output);
  }
  return stream + output;
}

}  // namespace headroom::nn
