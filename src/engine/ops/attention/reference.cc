#include <cmath>
#include <limits>

#include "headroom/ops/attention.h"
#include "mask.h"
#include "mixture_scores.h"

namespace headroom::ops {
namespace {

// From columns of offsets delta = c - (S - 1) to columns of keys: entry (i, j) of the result
// is entry (i, j + T - 1 - i) of `by_offset` [B, H, T, C]. One more column turns the shift of each row into a reshape.
at::Tensor skew(const at::Tensor& by_offset, const c10::SymInt& n_keys) {
  const c10::SymInt b = by_offset.sym_size(0), h = by_offset.sym_size(1), t = by_offset.sym_size(2);
  const c10::SymInt c = by_offset.sym_size(3);
  const at::Tensor padded = at::constant_pad_nd(by_offset, {0, 1});
  return padded.reshape_symint({b, h, t * (c + 1)})
      .narrow_symint(2, t - 1, t * c)
      .view_symint({b, h, t, c})
      .narrow_symint(3, 0, n_keys);
}

// The logarithm of what is added to a query's sum of exponentials, [1, H or 1, 1, 1]; undefined: nothing.
at::Tensor sink_of(const AttentionInputs& in, const at::TensorOptions& type) {
  const double epsilon = in.mixture ? in.mixture->epsilon : 0.0;
  const at::Tensor constant = epsilon > 0.0 ? at::full({1, 1, 1, 1}, std::log(epsilon), type) : at::Tensor();
  if (!in.sink) {
    return constant;
  }
  const at::Tensor learned = in.sink->to(type).view_symint({1, in.sink->sym_size(0), 1, 1});
  return constant.defined() ? at::logaddexp(learned, constant) : learned;
}

// Softmax over visible keys, with exp(sink) added to the sum of exponentials. A row that sees nothing gives 0.
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
  // Such a row would be 0/0: score it evenly, then take its probabilities away.
  const at::Tensor blind = s.detach().isneginf().all(-1, /*keepdim=*/true);
  return s.masked_fill(blind, 0.0).softmax(-1).masked_fill(blind, 0.0);
}

at::Tensor content_scores(const AttentionInputs& in, const Visit& visit) {
  if (in.mixture) {
    return mixture_scores(in, visit);
  }
  return in.q.matmul(for_every_head(in.k, in.q.sym_size(1)).transpose(2, 3)) * in.scale;
}

}  // namespace

at::Tensor attention_reference(const AttentionInputs& in, const Visit& visit) {
  const bool may_be_blind = in.mask.valid_keys || (in.mixture && in.mixture->prior);
  const auto softmax = [&](const at::Tensor& scores, const at::Tensor& visible) {
    return masked_softmax(scores, visible, sink_of(in, scores.options()), may_be_blind);
  };
  return weighted_attention(in, softmax, visit);
}

at::Tensor weighted_attention(const AttentionInputs& in, const Weigh& weigh, const Visit& visit) {
  const c10::SymInt n_heads = in.q.sym_size(1), n_queries = in.q.sym_size(2), n_keys = in.k.sym_size(2);
  const auto shown = [&](AttentionStage stage, at::Tensor value) {
    return visit ? visit(stage, std::move(value)) : value;
  };
  at::Tensor scores = content_scores(in, visit);
  if (in.r) {
    scores = scores + skew(in.q_position->matmul(in.r->transpose(1, 2)), n_keys) * in.scale;
  }
  if (scores.scalar_type() == at::kBFloat16 || scores.scalar_type() == at::kHalf) {
    scores = scores.to(at::kFloat);
  }
  if (in.bias) {
    scores = scores + in.bias->to(scores.scalar_type());
  }
  scores = shown(AttentionStage::scores, scores);
  const at::Tensor composed = shown(AttentionStage::scores_composed, in.pre ? apply_head_map(*in.pre, scores) : scores);
  const at::Tensor p =
      shown(AttentionStage::probs, weigh(composed, visible_keys(in.mask, n_queries, n_keys, in.q.device())));
  const at::Tensor p_composed = shown(AttentionStage::probs_composed, in.post ? apply_head_map(*in.post, p) : p);
  return p_composed.to(in.v.scalar_type()).matmul(for_every_head(in.v, n_heads));
}

}  // namespace headroom::ops
