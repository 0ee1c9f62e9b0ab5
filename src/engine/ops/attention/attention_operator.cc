#include "attention_operator.h"

#include <ATen/Parallel.h>

#include "engine/kernels/cpu/attention/mixture/mixture_rows.h"
#include "engine/ops/heads_on_cpu.h"
#include "engine/ops/shapes.h"
#include "foundation/core/transformed.h"

namespace headroom::ops {
namespace {

FusedAttention::Results attention_meta(const FusedAttention::Arguments& in) {
  return {results_by_token(in.q, in.v),
          at::empty_symint(in.q.sym_sizes().slice(0, 3), in.q.options().dtype(at::kFloat))};
}

FusedAttention::Arguments attention_backward_meta(const FusedAttention::Backward& back) {
  const FusedAttention::Arguments& in = back.in;
  const auto like = [](const OptionalTensor& t) { return t ? OptionalTensor(dense_like(*t)) : std::nullopt; };
  const auto stage = [&](const HeadMapArguments& s) {
    return HeadMapArguments{like(s.fixed), {like(s.query.factors)}, {like(s.key.factors)}};
  };
  FusedAttention::Arguments d;
  d.q = empty_by_token(in.q);
  d.k = dense_like(in.k);
  d.v = dense_like(in.v);
  if (in.q_position) {
    d.q_position = empty_by_token(*in.q_position);
  }
  d.r = like(in.r);
  d.sink = like(in.sink);
  d.pre = stage(in.pre);
  d.post = stage(in.post);
  d.query_term = like(in.query_term);
  d.key_term = like(in.key_term);
  const auto all_like = [](const std::vector<at::Tensor>& all) { return transformed(all, dense_like); };
  d.more_keys = all_like(in.more_keys);
  d.formula.learned = all_like(in.formula.learned);
  d.formula.tables = all_like(in.formula.tables);
  d.formula.tokens = all_like(in.formula.tokens);
  return d;
}

// Whether components differ by a constant shift only, so that one dot product serves all components.
bool share_product(const Mixture& mixture) {
  return mixture.shift && mixture.shift->sym_size(2) == 1;
}

// s_r = product_r q . k_r - length_r (|q|^2 + |k_r|^2); [R] each.
struct Factors {
  at::Tensor product, length;  // length undefined: 0
};

// The part of each component's scores that depends on the query or the key alone, [B, X, R, n]: -length_r |t|^2, plus
// shift_sign product_r t . shift_r if components share a dot product.
at::Tensor own_terms(const Mixture& mixture, const Factors& factors, const at::Tensor& t, double shift_sign) {
  at::Tensor weight = factors.length.defined() ? -factors.length : at::zeros_like(factors.product);
  weight = weight.unsqueeze(1);
  at::Tensor directions = at::empty_symint({t.sym_size(1), 0, t.sym_size(3)}, t.options().dtype(at::kFloat));
  if (share_product(mixture)) {  // [R, G, 1, e] to [X, R, e]
    directions = for_every_head(mixture.shift->squeeze(2), t.sym_size(1)).transpose(0, 1);
    weight = at::cat({weight, at::diag(factors.product * shift_sign)}, 1);
  }
  return weight.matmul(row_terms(t, directions));
}

at::Tensor query_terms(const AttentionInputs& in, const Factors& factors) {
  if (!in.mixture->coefficient && !share_product(*in.mixture)) {
    return at::zeros_symint({in.q.sym_size(0), in.q.sym_size(1), in.mixture->n_components(), in.q.sym_size(2)},
                            in.q.options().dtype(at::kFloat));
  }
  return own_terms(*in.mixture, factors, in.q, -1.0);
}

// Returns the key terms [B, G, R, S], including the logarithm of the prior.
at::Tensor key_terms(const AttentionInputs& in, const std::vector<at::Tensor>& keys, const Factors& factors) {
  const Mixture& mixture = *in.mixture;
  const std::int64_t r = mixture.n_components();
  at::Tensor terms;
  if (factors.length.defined() && share_product(mixture)) {
    const at::Tensor lengths = mixture.shift->squeeze(2).to(at::kFloat).square().sum(-1);  // [R, G]
    terms =
        own_terms(mixture, factors, in.k, 1.0) - (lengths * factors.length.view({r, 1})).transpose(0, 1).unsqueeze(2);
  } else if (factors.length.defined()) {
    std::vector<at::Tensor> lengths = transformed(keys, [&](const at::Tensor& key) {
      return row_terms(key, at::empty_symint({key.sym_size(1), 0, key.sym_size(3)}, factors.length.options()));
    });
    terms = at::cat(lengths, 2) * -factors.length.view({1, 1, r, 1});
  } else {
    terms =
        at::zeros_symint({in.k.sym_size(0), in.k.sym_size(1), r, in.k.sym_size(2)}, in.k.options().dtype(at::kFloat));
  }
  // With `maximum` there is no prior.
  return mixture.prior && !mixture.maximum ? terms + mixture.prior->to(at::kFloat).log().transpose(0, 1).unsqueeze(0)
                                           : terms;
}

void add_mixture(const AttentionInputs& in, FusedAttention::Arguments& to) {
  const Mixture& mixture = *in.mixture;
  std::vector<at::Tensor> keys = {in.k};
  if (mixture.shift && !share_product(mixture)) {
    keys.clear();
    for (std::int64_t r = 0; r < mixture.n_components(); ++r) {
      keys.push_back(in.k - mixture.shift->select(0, r).to(in.k.scalar_type()));
    }
  }
  keys.insert(keys.end(), mixture.more_keys.begin(), mixture.more_keys.end());
  Factors factors;
  if (mixture.coefficient) {
    factors.length = mixture.coefficient->to(at::kFloat);
    factors.product = factors.length * 2.0;
  } else {
    factors.product = at::full({mixture.n_components()}, in.scale, in.q.options().dtype(at::kFloat));
  }
  to.factor = factors.product;
  to.query_term = query_terms(in, factors);
  to.key_term = key_terms(in, keys, factors);
  to.k = keys[0];
  to.more_keys = {keys.begin() + 1, keys.end()};
  to.epsilon = mixture.epsilon;
  to.maximum = mixture.maximum;
}

void add_token_biases(const AttentionInputs& in, FusedAttention::Arguments& to) {
  const at::Tensor query = in.query_bias->to(at::kFloat).unsqueeze(2), key = in.key_bias->to(at::kFloat).unsqueeze(2);
  if (to.factor) {
    to.query_term = *to.query_term + query;
    to.key_term = for_every_head(*to.key_term, in.q.sym_size(1)) + key;
    return;
  }
  to.factor = at::full({1}, in.scale, in.q.options().dtype(at::kFloat));
  to.query_term = query.expand_symint({in.q.sym_size(0), -1, -1, -1});
  to.key_term = key.expand_symint({in.q.sym_size(0), -1, -1, -1});
}

}  // namespace

FusedAttention::Arguments fused_arguments(const AttentionInputs& in) {
  FusedAttention::Arguments to;
  to.q = in.q;
  to.k = in.k;
  to.v = in.v;
  to.q_position = in.q_position;
  to.r = in.r;
  to.sink = in.sink;
  to.valid_keys = in.mask.valid_keys;
  to.scale = in.scale;
  to.formula = in.formula;
  to.causal = in.mask.causal;
  to.window = in.mask.causal ? in.mask.window : 0;
  if (in.pre) {
    to.pre = HeadMapArguments::of(*in.pre);
  }
  if (in.post) {
    to.post = HeadMapArguments::of(*in.post);
  }
  if (in.mixture) {
    add_mixture(in, to);
  }
  if (in.query_bias) {
    add_token_biases(in, to);
  }
  return to;
}

TORCH_LIBRARY_FRAGMENT(headroom, library) {
  define<FusedAttention>(library);
  implement<FusedAttention, attention_meta, attention_backward_meta>(library, c10::DispatchKey::Meta);
}

namespace {

at::Tensor row_terms_reference(const RowTerms::Arguments& in) {
  const at::ScalarType type = in.t.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor t = in.t.to(type), directions = in.directions.to(type);
  return at::cat({t.square().sum(-1).unsqueeze(2), directions.matmul(t.transpose(2, 3))}, 2);
}

Single row_terms_meta(const RowTerms::Arguments& in) {
  return {at::empty_symint({in.t.sym_size(0), in.t.sym_size(1), in.directions.sym_size(1) + 1, in.t.sym_size(2)},
                           in.t.options().dtype(at::kFloat))};
}

RowTerms::Arguments row_terms_backward_meta(const RowTerms::Backward& back) {
  return {empty_by_token(back.in.t), dense_like(back.in.directions)};
}

// Calls body(task, kernel arguments) for every sequence and head of prepared tensors.
template <class Body>
void for_heads(const at::Tensor& t, const at::Tensor& directions, const Body& body) {
  const kernels::Heads rows = view(t);
  const std::int64_t heads = t.size(1), r = directions.size(1), e = t.size(3);
  const float* direction = directions.const_data_ptr<float>();
  at::parallel_for(0, t.size(0) * heads, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t b = task / heads, h = task % heads;
      body(task, kernels::RowTermsInput{t.size(2), e, r, rows.rows(b, h), direction + h * r * e});
    }
  });
}

Single row_terms_cpu(const RowTerms::Arguments& in) {
  const at::Tensor t = prepared(in.t), directions = in.directions.to(at::kFloat).contiguous();
  const std::int64_t rows = 1 + directions.size(1), room = rows * t.size(2);
  const at::Tensor terms = at::empty({t.size(0), t.size(1), rows, t.size(2)}, t.options().dtype(at::kFloat));
  float* to = terms.mutable_data_ptr<float>();
  for_heads(t, directions,
            [&](std::int64_t task, const kernels::RowTermsInput& head) { kernels::row_terms(head, to + task * room); });
  return {terms};
}

RowTerms::Arguments row_terms_backward_cpu(const RowTerms::Backward& back) {
  const at::Tensor t = prepared(back.in.t), directions = back.in.directions.to(at::kFloat).contiguous();
  const at::Tensor grad = back.grad.to(at::kFloat).contiguous();
  const std::int64_t heads = t.size(1), r = directions.size(1), e = t.size(3), room = (1 + r) * t.size(2);
  const at::Tensor d_t = empty_by_token(t), d_directions = at::zeros({t.size(0), heads, r, e}, directions.options());
  const kernels::HeadsOut d_rows = view_out(d_t);
  float* d_direction = d_directions.mutable_data_ptr<float>();
  for_heads(t, directions, [&](std::int64_t task, const kernels::RowTermsInput& head) {
    kernels::row_terms_backward(head, grad.const_data_ptr<float>() + task * room,
                                d_rows.rows(task / heads, task % heads), d_direction + task * r * e);
  });
  return {d_t.to(back.in.t.scalar_type()), d_directions.sum(0).to(back.in.directions.scalar_type())};
}

const Registration kRowTermsOnCpu(row_terms_backends(),
                                  {{"kernels", at::kCPU, 0, float32_or_bfloat16}, never_refuses, run<RowTerms>});

}  // namespace

Backends<RowTerms::Arguments>& row_terms_backends() {
  static Backends<RowTerms::Arguments> all("row_terms");
  return all;
}

at::Tensor row_terms(const at::Tensor& t, const at::Tensor& directions, Implementation implementation) {
  const RowTerms::Arguments in{t, directions};
  const auto* fused = row_terms_backends().choose_internal(implementation, t, in);
  return fused != nullptr ? fused->run(in) : row_terms_reference(in);
}

TORCH_LIBRARY_FRAGMENT(headroom, library) {
  define<RowTerms>(library);
  implement<RowTerms, row_terms_meta, row_terms_backward_meta>(library, c10::DispatchKey::Meta);
  implement<RowTerms, row_terms_cpu, row_terms_backward_cpu>(library, c10::DispatchKey::CPU);
}

}  // namespace headroom::ops
