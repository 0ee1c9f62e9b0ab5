// Heads that subtract a second attention matrix from their first (AttentionInputs::difference). Outputs are linear in
// the weights, so the outputs of all matrices are computed by any backend and then subtracted.
//
// Letters: B batch, H heads, G value heads, R = H / G, T queries, e d_head, w d_value.
#include "attention_operator.h"
#include "engine/ops/shapes.h"
#include "headroom/core/error.h"

namespace headroom::ops {
namespace {

// Reorders queries (g, r, m) to (g, m, r), head r of group g with its matrix m, so that the query heads of a key (g, m)
// are adjacent.
at::Tensor by_key(const at::Tensor& heads, std::int64_t axis, const c10::SymInt& groups) {
  const c10::SymInt per_group = heads.sym_size(axis) / groups / 2;
  return heads.unflatten_symint(axis, {groups, per_group, 2}).transpose(axis + 1, axis + 2).flatten(axis, axis + 2);
}

at::Tensor by_head(const at::Tensor& keyed, const c10::SymInt& groups) {
  return keyed.unflatten_symint(1, {groups, 2, keyed.sym_size(1) / groups / 2}).transpose(2, 3).flatten(1, 3);
}

bool has_two_keys(const AttentionInputs& in) {
  return in.k.sym_size(1) != in.v.sym_size(1);
}

}  // namespace

void check_difference(const AttentionInputs& in) {
  const at::Tensor& factor = *in.difference;
  const auto one_or = [&](std::int64_t axis, const c10::SymInt& size) {
    return factor.sym_size(axis) == 1 || factor.sym_size(axis) == size;
  };
  const c10::SymInt matrices = in.q.sym_size(1), heads = matrices / 2;
  const bool fits = matrices % 2 == 0 && factor.dim() == 4 && one_or(0, in.q.sym_size(0)) && one_or(1, heads) &&
                    one_or(2, in.q.sym_size(2)) && factor.sym_size(3) == 1;
  if (!fits) {
    fail("attention: difference must be [B or 1, H or 1, T or 1, 1] for queries [B, 2 H, T, e], got {} for {}",
         shape_of(factor), shape_of(in.q));
  }
  const c10::SymInt groups = in.v.sym_size(1), keys = in.k.sym_size(1);
  if (heads % groups != 0 || (keys != groups && (keys != groups * 2 || !in.sequences.empty()))) {
    fail("attention: k must have G or 2 G heads with difference, v G heads, and G must divide H={}, got {} and {}",
         text_of(heads), shape_of(in.k), shape_of(in.v));
  }
}

AttentionInputs with_terms_of_matrices(const AttentionInputs& in) {
  AttentionInputs all = in;
  const c10::SymInt matrices = in.q.sym_size(1);
  if (in.bias && in.bias->sym_size(1) != matrices) {
    all.bias = for_every_head(*in.bias, matrices);
  }
  if (in.sink && in.sink->sym_size(0) != matrices) {
    all.sink = in.sink->repeat_interleave(2);
  }
  return all;
}

at::Tensor keys_of_matrices(const at::Tensor& k, const c10::SymInt& groups, const c10::SymInt& matrices) {
  if (k.sym_size(1) == groups || k.sym_size(1) == matrices) {
    return k;
  }
  return for_every_head(k.unflatten_symint(1, {groups, 2}), matrices / 2).flatten(1, 2);
}

at::Tensor subtract_second(const at::Tensor& of_matrices, const at::Tensor& factor) {
  const at::Tensor pairs = of_matrices.unflatten_symint(1, {of_matrices.sym_size(1) / 2, 2});
  return pairs.select(2, 0) - factor * pairs.select(2, 1);
}

at::Tensor attention_with_difference(const AttentionInputs& in, Implementation implementation) {
  check_difference(in);
  AttentionInputs all = with_terms_of_matrices(in);
  all.difference.reset();
  if (!has_two_keys(in)) {
    return subtract_second(attention(all, implementation), *in.difference);
  }
  const c10::SymInt groups = in.v.sym_size(1);
  all.v = for_every_head(in.v, groups * 2);
  all.q = by_key(in.q, 1, groups);
  if (in.r) {
    all.q_position = by_key(*in.q_position, 1, groups);
    all.r = by_key(*in.r, 0, groups);
  }
  for (std::optional<at::Tensor>* term : {&all.bias, &all.query_bias, &all.key_bias}) {
    if (*term) {
      *term = by_key(**term, 1, groups);
    }
  }
  if (all.sink) {
    all.sink = by_key(*all.sink, 0, groups);
  }
  return subtract_second(by_head(attention(all, implementation), groups), *in.difference);
}

}  // namespace headroom::ops
