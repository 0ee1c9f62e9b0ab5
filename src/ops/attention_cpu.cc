// The blocked attention kernels as operators of torch's dispatcher, with their derivative.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <tuple>

#include "headroom/kernels/cpu/attention.h"
#include "heads_on_cpu.h"
#include "registered.h"

namespace headroom::ops {
namespace {

using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

// Holds what the kernels' pointers point into.
struct Prepared {
  at::Tensor q, k, v, q_position, r, key_bias;
  kernels::AttentionShape shape;
  kernels::AttentionTensors tensors;

  Prepared(const at::Tensor& q_in, const at::Tensor& k_in, const at::Tensor& v_in, const OptionalTensor& q_position_in,
           const OptionalTensor& r_in, const OptionalTensor& valid_keys, double scale, bool causal, std::int64_t window)
      : q(prepared(q_in)), k(prepared(k_in)), v(prepared(v_in)) {
    shape = {
        q.size(0), q.size(1), k.size(1), q.size(2), k.size(2), q.size(3), causal, window, static_cast<float>(scale)};
    tensors.q = view<const float>(q);
    tensors.k = view<const float>(k);
    tensors.v = view<const float>(v);
    if (q_position_in) {
      q_position = prepared(*q_position_in);
      r = prepared(*r_in);
      tensors.q_position = view<const float>(q_position);
      tensors.r = view<const float>(r);
    }
    if (valid_keys) {
      key_bias = ops::key_bias(*valid_keys);
      tensors.key_bias = key_bias.const_data_ptr<float>();
    }
  }
};

std::tuple<at::Tensor, at::Tensor> attention_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                 const OptionalTensor& q_position, const OptionalTensor& r,
                                                 const OptionalTensor& valid_keys, double scale, bool causal,
                                                 std::int64_t window) {
  const Prepared in(q, k, v, q_position, r, valid_keys, scale, causal, window);
  const at::Tensor o = empty_by_token(in.q);
  const at::Tensor log_sum = at::empty({q.size(0), q.size(1), q.size(2)}, in.q.options());
  const kernels::AttentionResult out{view<float>(o), log_sum.mutable_data_ptr<float>()};
  const auto forward =
      in.shape.queries < kernels::kFewQueries ? kernels::attention_few_queries : kernels::attention_forward;
  at::parallel_for(0, in.shape.batch * in.shape.heads, 1,
                   [&](std::int64_t begin, std::int64_t end) { forward(in.shape, in.tensors, out, begin, end); });
  return {o.to(q.scalar_type()), log_sum};
}

Gradients attention_backward_cpu(const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const OptionalTensor& q_position, const OptionalTensor& r,
                                 const OptionalTensor& valid_keys, const at::Tensor& o, const at::Tensor& log_sum,
                                 double scale, bool causal, std::int64_t window) {
  const Prepared in(q, k, v, q_position, r, valid_keys, scale, causal, window);
  const at::Tensor d_o = prepared(grad), result = prepared(o), sums = log_sum.contiguous();
  const std::int64_t b = q.size(0), h = q.size(1), e = q.size(3);
  const at::TensorOptions floats = in.q.options();
  const at::Tensor d_q = empty_by_token(in.q);
  const at::Tensor d_k = at::empty({b, h, k.size(2), e}, floats), d_v = at::empty({b, h, k.size(2), e}, floats);
  at::Tensor d_position, d_r;
  kernels::AttentionGradients out{.d_o = view<const float>(d_o),
                                  .o = view<const float>(result),
                                  .log_sum = sums.const_data_ptr<float>(),
                                  .d_q = view<float>(d_q),
                                  .d_k = view<float>(d_k),
                                  .d_v = view<float>(d_v)};
  if (r) {
    d_position = empty_by_token(in.q);
    d_r = at::empty({b, h, in.shape.offsets(), e}, floats);
    out.d_q_position = view<float>(d_position);
    out.d_r = view<float>(d_r);
  }
  at::parallel_for(0, b * h, 1, [&](std::int64_t begin, std::int64_t end) {
    kernels::attention_backward(in.shape, in.tensors, out, begin, end);
  });
  return {d_q.to(q.scalar_type()), per_group(d_k, k), per_group(d_v, v),
          r ? d_position.to(q_position->scalar_type()) : at::empty({0}, floats),
          r ? d_r.sum(0).to(r->scalar_type()) : at::empty({0}, floats)};
}

std::tuple<at::Tensor, at::Tensor> attention_meta(const at::Tensor& q, const at::Tensor&, const at::Tensor&,
                                                  const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
                                                  double, bool, std::int64_t) {
  return {at::empty_like(q), at::empty({q.size(0), q.size(1), q.size(2)}, q.options().dtype(at::kFloat))};
}

Gradients attention_backward_meta(const at::Tensor&, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const OptionalTensor& q_position, const OptionalTensor& r, const OptionalTensor&,
                                  const at::Tensor&, const at::Tensor&, double, bool, std::int64_t) {
  const at::Tensor none = at::empty({0}, q.options());
  return {at::empty_like(q), at::empty_like(k), at::empty_like(v), q_position ? at::empty_like(*q_position) : none,
          r ? at::empty_like(*r) : none};
}

class Attention : public torch::autograd::Function<Attention> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, const at::Tensor& q,
                                                const at::Tensor& k, const at::Tensor& v,
                                                const OptionalTensor& q_position, const OptionalTensor& r,
                                                const OptionalTensor& valid_keys, double scale, bool causal,
                                                std::int64_t window) {
    const at::AutoDispatchBelowADInplaceOrView below;
    static const auto op = registered<decltype(attention_cpu)>("headroom::attention");
    auto [o, log_sum] = op.call(q, k, v, q_position, r, valid_keys, scale, causal, window);
    context->save_for_backward({q, k, v, q_position.value_or(at::Tensor()), r.value_or(at::Tensor()),
                                valid_keys.value_or(at::Tensor()), o, log_sum});
    context->mark_non_differentiable({log_sum});
    context->saved_data["scale"] = scale;
    context->saved_data["causal"] = causal;
    context->saved_data["window"] = window;
    return {o, log_sum};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    const auto saved = context->get_saved_variables();
    static const auto op = registered<decltype(attention_backward_cpu)>("headroom::attention_backward");
    const OptionalTensor q_position = optional(saved[3]), r = optional(saved[4]);
    auto [d_q, d_k, d_v, d_position, d_r] =
        op.call(grads[0], saved[0], saved[1], saved[2], q_position, r, optional(saved[5]), saved[6], saved[7],
                context->saved_data["scale"].toDouble(), context->saved_data["causal"].toBool(),
                context->saved_data["window"].toInt());
    torch::autograd::variable_list result = {d_q, d_k, d_v, r ? d_position : at::Tensor(), r ? d_r : at::Tensor()};
    result.resize(9);
    return result;
  }
};

std::tuple<at::Tensor, at::Tensor> attention_autograd(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                      const OptionalTensor& q_position, const OptionalTensor& r,
                                                      const OptionalTensor& valid_keys, double scale, bool causal,
                                                      std::int64_t window) {
  const auto result = Attention::apply(q, k, v, q_position, r, valid_keys, scale, causal, window);
  return {result[0], result[1]};
}

}  // namespace

at::Tensor call_attention(const AttentionInputs& in) {
  static const auto op = registered<decltype(attention_cpu)>("headroom::attention");
  return std::get<0>(op.call(in.q, in.k, in.v, in.q_position, in.r, in.mask.valid_keys, in.scale, in.mask.causal,
                             in.mask.causal ? in.mask.window : 0));
}

TORCH_LIBRARY_FRAGMENT(headroom, library) {
  library.def(
      "attention(Tensor q, Tensor k, Tensor v, Tensor? q_position, Tensor? r, Tensor? valid_keys, float scale,"
      " bool causal, int window) -> (Tensor, Tensor)");
  library.def(
      "attention_backward(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor? q_position, Tensor? r, Tensor? valid_keys,"
      " Tensor o, Tensor log_sum, float scale, bool causal, int window) -> (Tensor, Tensor, Tensor, Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(headroom, CPU, library) {
  library.impl("attention", attention_cpu);
  library.impl("attention_backward", attention_backward_cpu);
}
TORCH_LIBRARY_IMPL(headroom, Meta, library) {
  library.impl("attention", attention_meta);
  library.impl("attention_backward", attention_backward_meta);
}
TORCH_LIBRARY_IMPL(headroom, Autograd, library) {
  library.impl("attention", attention_autograd);
}

}  // namespace headroom::ops
