// The kernels of mixture attention as operators of torch's dispatcher, with their derivative.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <tuple>

#include "headroom/kernels/cpu/mixture_attention.h"
#include "headroom/kernels/cpu/mixture_rows.h"
#include "heads_on_cpu.h"
#include "registered.h"
#include "row_terms.h"

namespace headroom::ops {
namespace {

// d_q, d_keys, d_v, d_query_term, d_key_term
using GradientsOfMixture = std::tuple<at::Tensor, std::vector<at::Tensor>, at::Tensor, at::Tensor, at::Tensor>;

// Holds what the kernels' pointers point into.
struct PreparedMixture {
  at::Tensor q, v, query_term, key_term, bias;
  std::vector<at::Tensor> keys;
  kernels::AttentionShape shape;
  kernels::MixtureTensors tensors;

  PreparedMixture(const at::Tensor& q_in, at::TensorList keys_in, const at::Tensor& v_in, at::ArrayRef<double> factor,
                  const at::Tensor& query_term_in, const at::Tensor& key_term_in, const OptionalTensor& valid_keys,
                  double epsilon, bool maximum, bool causal, std::int64_t window)
      : q(prepared(q_in)),
        v(prepared(v_in)),
        query_term(query_term_in.to(at::kFloat).contiguous()),
        key_term(key_term_in.to(at::kFloat).contiguous()) {
    shape = {q.size(0), q.size(1), v.size(1), q.size(2), v.size(2), q.size(3), causal, window, 1.0F};
    tensors.q = view<const float>(q);
    tensors.v = view<const float>(v);
    for (const at::Tensor& key : keys_in) {
      keys.push_back(prepared(key));
      tensors.keys.push_back(view<const float>(keys.back()));
    }
    tensors.factor.assign(factor.begin(), factor.end());
    tensors.query_term = query_term.const_data_ptr<float>();
    tensors.key_term = key_term.const_data_ptr<float>();
    tensors.epsilon = static_cast<float>(epsilon);
    tensors.maximum = maximum;
    if (valid_keys) {
      bias = key_bias(*valid_keys);
      tensors.key_bias = bias.const_data_ptr<float>();
    }
  }
};

std::tuple<at::Tensor, at::Tensor> mixture_attention_cpu(const at::Tensor& q, at::TensorList keys, const at::Tensor& v,
                                                         at::ArrayRef<double> factor, const at::Tensor& query_term,
                                                         const at::Tensor& key_term, const OptionalTensor& valid_keys,
                                                         double epsilon, bool maximum, bool causal,
                                                         std::int64_t window) {
  const PreparedMixture in(q, keys, v, factor, query_term, key_term, valid_keys, epsilon, maximum, causal, window);
  const at::Tensor o = empty_by_token(in.q);
  const at::Tensor log_sum = at::empty({q.size(0), q.size(1), q.size(2)}, in.q.options());
  const kernels::AttentionResult out{view<float>(o), log_sum.mutable_data_ptr<float>()};
  at::parallel_for(0, in.shape.batch * in.shape.heads, 1, [&](std::int64_t begin, std::int64_t end) {
    kernels::mixture_attention_forward(in.shape, in.tensors, out, begin, end);
  });
  return {o.to(q.scalar_type()), log_sum};
}

GradientsOfMixture mixture_attention_backward_cpu(const at::Tensor& grad, const at::Tensor& q, at::TensorList keys,
                                                  const at::Tensor& v, at::ArrayRef<double> factor,
                                                  const at::Tensor& query_term, const at::Tensor& key_term,
                                                  const OptionalTensor& valid_keys, const at::Tensor& o,
                                                  const at::Tensor& log_sum, double epsilon, bool maximum, bool causal,
                                                  std::int64_t window) {
  const PreparedMixture in(q, keys, v, factor, query_term, key_term, valid_keys, epsilon, maximum, causal, window);
  const at::Tensor d_o = prepared(grad), result = prepared(o), sums = log_sum.contiguous();
  const std::int64_t b = q.size(0), h = q.size(1), e = q.size(3), s = v.size(2);
  const at::TensorOptions floats = in.q.options();
  const at::Tensor d_q = empty_by_token(in.q), d_v = at::empty({b, h, s, e}, floats);
  const at::Tensor d_query_term = at::empty(in.query_term.sizes(), floats);
  const at::Tensor d_key_term = at::zeros({b, h, in.key_term.size(2), s}, floats);
  kernels::MixtureGradients out{.d_o = view<const float>(d_o),
                                .o = view<const float>(result),
                                .log_sum = sums.const_data_ptr<float>(),
                                .d_q = view<float>(d_q),
                                .d_v = view<float>(d_v),
                                .d_keys = {},
                                .d_query_term = d_query_term.mutable_data_ptr<float>(),
                                .d_key_term = d_key_term.mutable_data_ptr<float>()};
  std::vector<at::Tensor> d_keys;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    d_keys.push_back(at::empty({b, h, s, e}, floats));
    out.d_keys.push_back(view<float>(d_keys.back()));
  }
  at::parallel_for(0, b * h, 1, [&](std::int64_t begin, std::int64_t end) {
    kernels::mixture_attention_backward(in.shape, in.tensors, out, begin, end);
  });
  for (std::size_t i = 0; i < keys.size(); ++i) {
    d_keys[i] = per_group(d_keys[i], keys[i]);
  }
  return {d_q.to(q.scalar_type()), std::move(d_keys), per_group(d_v, v), d_query_term.to(query_term.scalar_type()),
          per_group(d_key_term, key_term)};
}

std::tuple<at::Tensor, at::Tensor> mixture_attention_meta(const at::Tensor& q, at::TensorList, const at::Tensor&,
                                                          at::ArrayRef<double>, const at::Tensor&, const at::Tensor&,
                                                          const OptionalTensor&, double, bool, bool, std::int64_t) {
  return {at::empty_like(q), at::empty({q.size(0), q.size(1), q.size(2)}, q.options().dtype(at::kFloat))};
}

GradientsOfMixture mixture_attention_backward_meta(const at::Tensor&, const at::Tensor& q, at::TensorList keys,
                                                   const at::Tensor& v, at::ArrayRef<double>,
                                                   const at::Tensor& query_term, const at::Tensor& key_term,
                                                   const OptionalTensor&, const at::Tensor&, const at::Tensor&, double,
                                                   bool, bool, std::int64_t) {
  std::vector<at::Tensor> d_keys;
  for (const at::Tensor& key : keys) {
    d_keys.push_back(at::empty_like(key));
  }
  return {at::empty_like(q), std::move(d_keys), at::empty_like(v), at::empty_like(query_term),
          at::empty_like(key_term)};
}

class MixtureAttention : public torch::autograd::Function<MixtureAttention> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, const at::Tensor& q,
                                                at::TensorList keys, const at::Tensor& v, at::ArrayRef<double> factor,
                                                const at::Tensor& query_term, const at::Tensor& key_term,
                                                const OptionalTensor& valid_keys, double epsilon, bool maximum,
                                                bool causal, std::int64_t window) {
    const at::AutoDispatchBelowADInplaceOrView below;
    static const auto op = registered<decltype(mixture_attention_cpu)>("headroom::mixture_attention");
    auto [o, log_sum] = op.call(q, keys, v, factor, query_term, key_term, valid_keys, epsilon, maximum, causal, window);
    torch::autograd::variable_list saved = {q, v, query_term, key_term, valid_keys.value_or(at::Tensor()), o, log_sum};
    saved.insert(saved.end(), keys.begin(), keys.end());
    context->save_for_backward(std::move(saved));
    context->mark_non_differentiable({log_sum});
    context->saved_data["factor"] = factor.vec();
    context->saved_data["epsilon"] = epsilon;
    context->saved_data["maximum"] = maximum;
    context->saved_data["causal"] = causal;
    context->saved_data["window"] = window;
    return {o, log_sum};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    const auto saved = context->get_saved_variables();
    static const auto op = registered<decltype(mixture_attention_backward_cpu)>("headroom::mixture_attention_backward");
    const at::TensorList keys = at::TensorList(saved).slice(7);
    const std::vector<double> factor = context->saved_data["factor"].toDoubleVector();
    auto [d_q, d_keys, d_v, d_query_term, d_key_term] =
        op.call(grads[0], saved[0], keys, saved[1], factor, saved[2], saved[3], optional(saved[4]), saved[5], saved[6],
                context->saved_data["epsilon"].toDouble(), context->saved_data["maximum"].toBool(),
                context->saved_data["causal"].toBool(), context->saved_data["window"].toInt());
    torch::autograd::variable_list result = {d_q};
    result.insert(result.end(), d_keys.begin(), d_keys.end());
    for (const at::Tensor& t : {d_v, at::Tensor(), d_query_term, d_key_term}) {
      result.push_back(t);
    }
    result.resize(result.size() + 5);
    return result;
  }
};

std::tuple<at::Tensor, at::Tensor> mixture_attention_autograd(const at::Tensor& q, at::TensorList keys,
                                                              const at::Tensor& v, at::ArrayRef<double> factor,
                                                              const at::Tensor& query_term, const at::Tensor& key_term,
                                                              const OptionalTensor& valid_keys, double epsilon,
                                                              bool maximum, bool causal, std::int64_t window) {
  const auto result =
      MixtureAttention::apply(q, keys, v, factor, query_term, key_term, valid_keys, epsilon, maximum, causal, window);
  return {result[0], result[1]};
}

// Components that differ by a shift have one product with the query between them.
bool share_product(const Mixture& mixture) {
  return mixture.shift && mixture.shift->size(2) == 1;
}

// s_r = product_r q . k_r - length_r (|q|^2 + |k_r|^2), [R] each.
struct Factors {
  std::vector<double> product, length;
};

Factors factors_of(const AttentionInputs& in) {
  const auto n = static_cast<std::size_t>(in.mixture->n_components());
  Factors factors{std::vector<double>(n, in.scale), std::vector<double>(n, 0.0)};
  if (in.mixture->coefficient) {
    const at::Tensor c = in.mixture->coefficient->to(at::kDouble).contiguous();
    std::copy_n(c.const_data_ptr<double>(), n, factors.length.begin());
    std::transform(factors.length.begin(), factors.length.end(), factors.product.begin(),
                   [](double x) { return 2.0 * x; });
  }
  return factors;
}

// The part of each component's scores that depends on the query or the key alone, [B, X, R, n]: -length_r |t|^2, and
// with shifts of one product `shift_sign` product_r t . shift_r.
at::Tensor own_terms(const Mixture& mixture, const Factors& factors, const at::Tensor& t, double shift_sign) {
  const std::int64_t n_components = mixture.n_components();
  const bool shifted = share_product(mixture);
  at::Tensor directions = at::empty({t.size(1), 0, t.size(3)}, at::kFloat);
  if (shifted) {  // [R, G, 1, e] to [X, R, e]
    directions = mixture.shift->squeeze(2).transpose(0, 1).repeat_interleave(t.size(1) / mixture.shift->size(1), 0);
  }
  const at::Tensor weight = at::zeros({n_components, 1 + directions.size(1)}, at::kFloat);
  auto entry = weight.accessor<float, 2>();
  for (std::int64_t r = 0; r < n_components; ++r) {
    entry[r][0] = static_cast<float>(-factors.length[static_cast<std::size_t>(r)]);
    if (shifted) {
      entry[r][1 + r] = static_cast<float>(shift_sign * factors.product[static_cast<std::size_t>(r)]);
    }
  }
  return weight.matmul(row_terms(t, directions));
}

at::Tensor query_terms(const AttentionInputs& in, const Factors& factors) {
  if (!in.mixture->coefficient && !share_product(*in.mixture)) {
    return at::zeros({in.q.size(0), in.q.size(1), in.mixture->n_components(), in.q.size(2)}, at::kFloat);
  }
  return own_terms(*in.mixture, factors, in.q, -1.0);
}

// [B, G, R, S], with the logarithm of the prior.
at::Tensor key_terms(const AttentionInputs& in, const std::vector<at::Tensor>& keys, const Factors& factors) {
  const Mixture& mixture = *in.mixture;
  const std::int64_t r = mixture.n_components();
  at::Tensor terms = at::zeros({in.k.size(0), in.k.size(1), r, in.k.size(2)}, at::kFloat);
  if (mixture.coefficient && share_product(mixture)) {
    const at::Tensor c = mixture.coefficient->to(at::kFloat).view({r, 1});
    const at::Tensor lengths = mixture.shift->squeeze(2).to(at::kFloat).square().sum(-1);  // [R, G]
    terms = own_terms(mixture, factors, in.k, 1.0) - (lengths * c).transpose(0, 1).unsqueeze(2);
  } else if (mixture.coefficient) {
    std::vector<at::Tensor> lengths;
    for (const at::Tensor& key : keys) {
      lengths.push_back(row_terms(key, at::empty({key.size(1), 0, key.size(3)}, at::kFloat)));
    }
    terms = at::cat(lengths, 2) * -mixture.coefficient->to(at::kFloat).view({1, 1, r, 1});
  }
  // The best component alone has no prior.
  return mixture.prior && !mixture.maximum ? terms + mixture.prior->to(at::kFloat).log().transpose(0, 1).unsqueeze(0)
                                           : terms;
}

}  // namespace

std::string mixture_attention_refusal(const AttentionInputs& in) {
  const Mixture& mixture = *in.mixture;
  if (!in.q.is_cpu() || in.r || in.pre || in.post) {
    return "mixtures of keys are fused on the CPU, without relative positions and composed heads";
  }
  if (mixture.n_components() > kernels::kMostComponents) {
    return fmt::format("mixtures of keys are fused up to {} components", kernels::kMostComponents);
  }
  if (mixture.coefficient && mixture.coefficient->requires_grad()) {
    return "mixtures of keys with a learned scale have the reference only";
  }
  if (mixture.prior && mixture.prior->le(0.0).any().item<bool>()) {
    return "mixtures of keys with a component without weight have the reference only";
  }
  return {};
}

at::Tensor call_mixture_attention(const AttentionInputs& in) {
  static const auto op = registered<decltype(mixture_attention_cpu)>("headroom::mixture_attention");
  const Mixture& mixture = *in.mixture;
  std::vector<at::Tensor> keys = {in.k};
  if (mixture.shift && !share_product(mixture)) {
    keys.clear();
    for (std::int64_t r = 0; r < mixture.n_components(); ++r) {
      keys.push_back(in.k - mixture.shift->select(0, r).to(in.k.scalar_type()));
    }
  }
  keys.insert(keys.end(), mixture.more_keys.begin(), mixture.more_keys.end());
  const Factors factors = factors_of(in);
  return std::get<0>(op.call(in.q, keys, in.v, factors.product, query_terms(in, factors), key_terms(in, keys, factors),
                             in.mask.valid_keys, mixture.epsilon, mixture.maximum, in.mask.causal,
                             in.mask.causal ? in.mask.window : 0));
}

TORCH_LIBRARY_FRAGMENT(headroom, library) {
  library.def(
      "mixture_attention(Tensor q, Tensor[] keys, Tensor v, float[] factor, Tensor query_term, Tensor key_term,"
      " Tensor? valid_keys, float epsilon, bool maximum, bool causal, int window) -> (Tensor, Tensor)");
  library.def(
      "mixture_attention_backward(Tensor grad, Tensor q, Tensor[] keys, Tensor v, float[] factor, Tensor query_term,"
      " Tensor key_term, Tensor? valid_keys, Tensor o, Tensor log_sum, float epsilon, bool maximum, bool causal,"
      " int window) -> (Tensor, Tensor[], Tensor, Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(headroom, CPU, library) {
  library.impl("mixture_attention", mixture_attention_cpu);
  library.impl("mixture_attention_backward", mixture_attention_backward_cpu);
}
TORCH_LIBRARY_IMPL(headroom, Meta, library) {
  library.impl("mixture_attention", mixture_attention_meta);
  library.impl("mixture_attention_backward", mixture_attention_backward_meta);
}
TORCH_LIBRARY_IMPL(headroom, Autograd, library) {
  library.impl("mixture_attention", mixture_attention_autograd);
}

}  // namespace headroom::ops
