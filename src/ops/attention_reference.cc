#include <limits>

#include "attention_mask.h"
#include "headroom/ops/attention.h"

namespace headroom::ops {
namespace {

// From columns that stand for offsets delta = c - (S - 1) to columns that stand for keys: entry (i, j) of the result
// is entry (i, j + T - 1 - i) of `by_offset` [B, H, T, C]. One more column turns the shift of each row into a reshape.
at::Tensor skew(const at::Tensor& by_offset, std::int64_t n_keys) {
  const std::int64_t b = by_offset.size(0), h = by_offset.size(1), t = by_offset.size(2), c = by_offset.size(3);
  const at::Tensor padded = at::constant_pad_nd(by_offset, {0, 1});
  return padded.reshape({b, h, t * (c + 1)}).narrow(2, t - 1, t * c).view({b, h, t, c}).narrow(3, 0, n_keys);
}

// Key and value heads repeated for the query heads that share them.
at::Tensor for_every_head(const at::Tensor& grouped, std::int64_t n_heads) {
  return grouped.size(1) == n_heads ? grouped : grouped.repeat_interleave(n_heads / grouped.size(1), 1);
}

}  // namespace

at::Tensor attention_reference(const AttentionInputs& in, at::Tensor* probabilities) {
  const std::int64_t n_heads = in.q.size(1), n_queries = in.q.size(2), n_keys = in.k.size(2);
  at::Tensor scores = in.q.matmul(for_every_head(in.k, n_heads).transpose(2, 3));
  if (in.r) {
    scores = scores + skew(in.q_position->matmul(in.r->transpose(1, 2)), n_keys);
  }
  scores = scores * in.scale;
  const at::ScalarType type = scores.scalar_type();
  if (type == at::kBFloat16 || type == at::kHalf) {
    scores = scores.to(at::kFloat);
  }
  const at::Tensor visible = visible_keys(in.mask, n_queries, n_keys, in.q.device());
  if (visible.defined()) {
    scores = scores.masked_fill(visible.logical_not(), -std::numeric_limits<double>::infinity());
  }
  at::Tensor p;
  if (in.mask.valid_keys) {
    // A row that sees nothing would be 0/0: score it evenly, then take its probabilities away.
    const at::Tensor blind = visible.any(-1, /*keepdim=*/true).logical_not();
    p = scores.masked_fill(blind, 0.0).softmax(-1).masked_fill(blind, 0.0);
  } else {
    p = scores.softmax(-1);
  }
  if (probabilities != nullptr) {
    *probabilities = p;
  }
  return p.to(type).matmul(for_every_head(in.v, n_heads));
}

}  // namespace headroom::ops
