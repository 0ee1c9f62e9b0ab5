#include <ATen/record_function.h>

#include <cmath>
#include <limits>

#include "attention_operator.h"
#include "engine/ops/many_rows.h"
#include "foundation/core/ceil_div.h"
#include "foundation/core/transformed.h"
#include "headroom/ops/attention.h"
#include "headroom/ops/linear.h"

namespace headroom::ops {

at::Tensor visible_keys(const AttentionMask& mask, const c10::SymInt& n_queries, const c10::SymInt& n_keys,
                        at::Device device) {
  at::Tensor visible;
  if (mask.causal && n_queries > 1) {
    const at::TensorOptions whole = at::TensorOptions(at::kLong).device(device);
    const at::Tensor key = at::arange(at::Scalar(n_keys), whole);
    const at::Tensor query = at::arange(at::Scalar(n_keys - n_queries), at::Scalar(n_keys), whole).unsqueeze(1);
    visible = key.le(query);
    if (mask.window > 0) {
      visible = visible.logical_and(key.gt(query - mask.window));
    }
  } else if (mask.causal && mask.window > 0) {
    visible = at::arange(at::Scalar(n_keys), device).ge(at::Scalar(n_keys - mask.window)).unsqueeze(0);
  }
  if (mask.valid_keys) {
    const at::Tensor valid = mask.valid_keys->unsqueeze(1).unsqueeze(1);
    visible = visible.defined() ? visible.logical_and(valid) : valid.expand_symint({-1, 1, n_queries, n_keys});
  }
  return visible;
}

namespace {

// torch's matmul rounds differently for other numbers of queries, keys and matrices. With `in_blocks`, each head is
// multiplied separately and in blocks of keys, so that a query's results depend neither on other queries nor on later
// keys.
constexpr std::int64_t kKeysAtOnce = 64;

// Returns multiply(a, b) of all heads of a [B, H, ...] and b [B or 1, H, ...].
template <class Multiply>
at::Tensor by_head(const at::Tensor& a, const at::Tensor& b, const Multiply& multiply) {
  std::vector<at::Tensor> all;
  for (std::int64_t row = 0; row < a.size(0); ++row) {
    for (std::int64_t h = 0; h < a.size(1); ++h) {
      all.push_back(multiply(a[row][h], b[b.size(0) == 1 ? 0 : row][h]));
    }
  }
  return at::stack(all).unflatten(0, {a.size(0), a.size(1)});
}

at::Tensor at_least_float(const at::Tensor& t) {
  return t.scalar_type() == at::kDouble ? t : t.to(at::kFloat);
}

// Pads `t` [S, ...] with zeros to a multiple of kKeysAtOnce, and splits it into blocks.
std::vector<at::Tensor> key_blocks(const at::Tensor& t) {
  const std::int64_t padding = ceil_div(t.size(0), kKeysAtOnce) * kKeysAtOnce - t.size(0);
  return at::constant_pad_nd(t, {0, 0, 0, padding}).split(kKeysAtOnce);
}

// Returns q k^T, [B, H, T, S].
at::Tensor products(const at::Tensor& q, const at::Tensor& k, bool in_blocks) {
  if (!in_blocks) {
    return q.matmul(k.transpose(2, 3));
  }
  return by_head(q, k, [](const at::Tensor& queries, const at::Tensor& keys) {
    const std::vector<at::Tensor> columns = transformed(
        key_blocks(keys), [&](const at::Tensor& block) { return ops::linear(queries, block.t().contiguous()); });
    return at::cat(columns, 1).narrow(1, 0, keys.size(0));
  });
}

// Returns p v, [B, H, T, w].
at::Tensor weighted_sums(const at::Tensor& p, const at::Tensor& v, bool in_blocks) {
  if (!in_blocks) {
    return p.matmul(v);
  }
  return by_head(p, v, [](const at::Tensor& weights, const at::Tensor& values) {
    const std::vector<at::Tensor> by_key = key_blocks(at_least_float(weights).t()),
                                  blocks = key_blocks(at_least_float(values));
    at::Tensor sum = at::zeros({weights.size(0), values.size(1)}, blocks[0].options());
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      sum = sum + ops::linear(by_key[i].t().contiguous(), blocks[i]);
    }
    return sum.to(values.scalar_type());
  });
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kMaxExponent = 60.0;  // limits components with prior 0, whose score may far exceed all others

at::Tensor squared_length(const at::Tensor& t) {
  return at_least_float(t).square().sum(-1);
}

// Returns the score s_r of component r, [B, H, T, S].
at::Tensor component_score(const AttentionInputs& in, const at::Tensor& key, std::int64_t r) {
  const Mixture& mixture = *in.mixture;
  const at::Tensor k = for_every_head(key, in.q.sym_size(1));
  const at::Tensor product = at_least_float(in.q.matmul(k.transpose(2, 3)));
  if (!mixture.coefficient) {
    return product * in.scale;
  }
  const at::Tensor distance = squared_length(in.q).unsqueeze(3) - product * 2.0 + squared_length(k).unsqueeze(2);
  return distance * -at_least_float(mixture.coefficient->select(0, r));
}

// Returns log sum_r prior_r exp(s_r); -infinity where all priors are 0.
at::Tensor log_weight(const std::vector<at::Tensor>& scores, const std::optional<at::Tensor>& prior) {
  const at::Tensor s = at::stack(scores);  // [R, B, H, T, S]
  if (!prior) {
    return s.logsumexp(at::IntArrayRef{0});
  }
  const at::Tensor weightless = prior->detach().le(0.0);
  at::Tensor top = std::get<0>(s.detach().masked_fill(weightless, -kInfinity).max(0));
  top = top.masked_fill(top.isinf(), 0.0);
  const at::Tensor sum = (*prior * (s - top).clamp_max(kMaxExponent).exp()).sum(0);
  const at::Tensor none = sum.detach().le(0.0);
  return (sum.masked_fill(none, 1.0).log() + top).masked_fill(none, -kInfinity);
}

}  // namespace

std::int64_t Mixture::n_components() const {
  return shift ? shift->sym_size(0).guard_int(__FILE__, __LINE__) : static_cast<std::int64_t>(more_keys.size()) + 1;
}

at::Tensor for_every_head(const at::Tensor& grouped, const c10::SymInt& n_heads) {
  const c10::SymInt groups = grouped.sym_size(1);
  return groups == n_heads ? grouped : grouped.repeat_interleave_symint(n_heads / groups, 1);
}

namespace {

// Returns a mixture's content scores, [B, H, T, S]. Calls `visit`, if set, with every s_r.
at::Tensor mixture_scores(const AttentionInputs& in, const Visit& visit) {
  const Mixture& mixture = *in.mixture;
  std::vector<at::Tensor> scores;
  for (std::int64_t r = 0; r < mixture.n_components(); ++r) {
    const at::Tensor key = mixture.shift ? in.k - mixture.shift->select(0, r).to(in.k.scalar_type())
                           : r == 0      ? in.k
                                         : mixture.more_keys[static_cast<std::size_t>(r - 1)].to(in.k.scalar_type());
    const at::Tensor score = component_score(in, key, r);
    scores.push_back(visit ? visit(AttentionStage::component, score) : score);
  }
  if (mixture.maximum) {
    return at::stack(scores).amax(0);
  }
  if (scores.size() == 1 && !mixture.prior) {
    return scores[0];
  }
  std::optional<at::Tensor> prior;
  if (mixture.prior) {  // [R, G, S or 1] to [R, 1, H, 1, S or 1]
    prior = at_least_float(for_every_head(*mixture.prior, in.q.sym_size(1))).unsqueeze(2).unsqueeze(1);
  }
  return log_weight(scores, prior);
}

// Shifts columns of offsets delta = c - (S - 1) to columns of keys: element (i, j) of the result is element (i, j + T -
// 1 - i) of `by_offset` [B, H, T, C]. With one column of padding, the shift is a reshape.
at::Tensor skew(const at::Tensor& by_offset, const c10::SymInt& n_keys) {
  const c10::SymInt b = by_offset.sym_size(0), h = by_offset.sym_size(1), t = by_offset.sym_size(2);
  const c10::SymInt c = by_offset.sym_size(3);
  if (t == 0) {
    return at::constant_pad_nd_symint(by_offset, std::vector<c10::SymInt>{0, n_keys - c});
  }
  const at::Tensor padded = at::constant_pad_nd(by_offset, {0, 1});
  return padded.reshape_symint({b, h, t * (c + 1)})
      .narrow_symint(2, t - 1, t * c)
      .view_symint({b, h, t, c})
      .narrow_symint(3, 0, n_keys);
}

// Returns the logarithm of the term added to the softmax denominator, [1, H or 1, 1, 1]; undefined: none.
at::Tensor sink_of(const AttentionInputs& in, const at::TensorOptions& type) {
  const double epsilon = in.mixture ? in.mixture->epsilon : 0.0;
  const at::Tensor constant = epsilon > 0.0 ? at::full({1, 1, 1, 1}, std::log(epsilon), type) : at::Tensor();
  if (!in.sink) {
    return constant;
  }
  const at::Tensor learned = in.sink->to(type).view_symint({1, in.sink->sym_size(0), 1, 1});
  return constant.defined() ? at::logaddexp(learned, constant) : learned;
}

// Softmax over visible keys with exp(sink) added to the denominator. Rows without a visible key become 0; set
// `may_be_blind` if such rows are possible.
at::Tensor masked_softmax(const at::Tensor& scores, const at::Tensor& visible, const at::Tensor& sink,
                          bool may_be_blind) {
  at::Tensor s = scores;
  if (visible.defined()) {
    s = s.masked_fill(visible.logical_not(), -std::numeric_limits<double>::infinity());
  }
  if (sink.defined()) {
    std::vector<c10::SymInt> column = s.sym_sizes().vec();
    column.back() = 1;
    return at::cat({s, sink.expand_symint(column)}, -1).softmax(-1).slice(-1, 0, -1);
  }
  if (!may_be_blind) {
    return s.softmax(-1);
  }
  // Such a row would be 0/0: replace its scores by 0, then its probabilities.
  const at::Tensor blind = s.detach().isneginf().all(-1, /*keepdim=*/true);
  return s.masked_fill(blind, 0.0).softmax(-1).masked_fill(blind, 0.0);
}

at::Tensor content_scores(const AttentionInputs& in, const Visit& visit, bool in_blocks) {
  if (in.mixture) {
    return mixture_scores(in, visit);
  }
  return products(in.q, for_every_head(in.k, in.q.sym_size(1)), in_blocks) * in.scale;
}

at::Tensor attend(const AttentionInputs& given, const Weigh& weigh, const Visit& visit, bool in_blocks) {
  AttentionInputs in = given;
  if (in.difference) {
    check_difference(in);
    in = with_terms_of_matrices(in);
    in.k = keys_of_matrices(in.k, in.v.sym_size(1), in.q.sym_size(1));
  }
  const c10::SymInt n_heads = in.q.sym_size(1), n_queries = in.q.sym_size(2), n_keys = in.k.sym_size(2);
  // training/cost/count.cc uses this to tell which matrix multiplications belong to pairs of query and key.
  RECORD_FUNCTION_WITH_SCOPE(at::RecordScope::USER_SCOPE, "headroom::attend",
                             std::vector<c10::IValue>({n_queries, n_keys, in.mask.causal, in.mask.window}));
  const auto shown = [&](AttentionStage stage, at::Tensor value) {
    return visit ? visit(stage, std::move(value)) : value;
  };
  at::Tensor scores = content_scores(in, visit, in_blocks);
  if (in.r) {
    const at::Tensor p = in.q_position->to(in.q.scalar_type()), r = in.r->to(in.q.scalar_type());
    scores = scores + skew(products(p, r.unsqueeze(0), in_blocks), n_keys) * in.scale;
  }
  if (scores.scalar_type() == at::kBFloat16 || scores.scalar_type() == at::kHalf) {
    scores = scores.to(at::kFloat);
  }
  if (in.bias) {
    scores = scores + in.bias->to(scores.scalar_type());
  }
  if (in.query_bias) {  // the two terms first: each may be much larger than their sum
    const at::Tensor bias = at_least_float(*in.query_bias).unsqueeze(3) + at_least_float(*in.key_bias).unsqueeze(2);
    scores = scores + bias.to(scores.scalar_type());
  }
  scores = shown(AttentionStage::scores, formula_scores(in, scores));
  const at::Tensor composed = shown(AttentionStage::scores_composed, in.pre ? apply_head_map(*in.pre, scores) : scores);
  const at::Tensor visible = formula_visible(in, visible_keys(in.mask, n_queries, n_keys, in.q.device()));
  const at::Tensor p = shown(AttentionStage::probs, weigh(composed, visible));
  if (in.difference && visit) {  // the weights that multiply the values are a difference of matrices
    const at::Tensor difference = shown(AttentionStage::probs_composed, subtract_second(p, *in.difference));
    return weighted_sums(difference.to(in.v.scalar_type()), for_every_head(in.v, n_heads / 2), in_blocks);
  }
  const at::Tensor p_composed = shown(AttentionStage::probs_composed, in.post ? apply_head_map(*in.post, p) : p);
  const at::Tensor o = weighted_sums(p_composed.to(in.v.scalar_type()), for_every_head(in.v, n_heads), in_blocks);
  return in.difference ? subtract_second(o, *in.difference) : o;
}

}  // namespace

at::Tensor attention_reference(const AttentionInputs& given, const Visit& visit) {
  const AttentionInputs in = given.difference ? with_terms_of_matrices(given) : given;
  const bool may_be_blind = in.mask.valid_keys || in.formula.given() || (in.mixture && in.mixture->prior);
  const auto softmax = [&](const at::Tensor& scores, const at::Tensor& visible) {
    if (!in.formula.normalise) {
      return visible.defined() ? scores.masked_fill(visible.logical_not(), 0.0) : scores;
    }
    return masked_softmax(scores, visible, sink_of(in, scores.options()), may_be_blind);
  };
  return attend(in, softmax, visit, /*in_blocks=*/false);
}

at::Tensor weighted_attention(const AttentionInputs& in, const Weigh& weigh, const Visit& visit) {
  return attend(in, weigh, visit, ManyRows::active() && in.q.is_cpu());
}

}  // namespace headroom::ops
