#include "attention_operator.h"

#include "engine/ops/shapes.h"
#include "foundation/core/transformed.h"
#include "row_terms.h"

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
  for (const at::Tensor& key : in.more_keys) {
    d.more_keys.push_back(dense_like(key));
  }
  return d;
}

// Whether components differ by a constant shift only, so that one dot product serves all.
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

// [B, G, R, S], including the logarithm of the prior.
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

}  // namespace headroom::ops
