#include "sequences.h"

#include "engine/ops/shapes.h"
#include "headroom/core/error.h"
#include "operator.h"

namespace headroom::ops {
namespace {

void check_sequences(const AttentionInputs& in) {
  const std::int64_t n = std::ssize(in.sequences);
  if (in.q.dim() != 4 || in.q.size(0) != n || in.q.size(2) != 1) {
    fail("attention: of {} sequences q must be [{}, H, 1, e], got {}", n, n, shape_of(in.q));
  }
  if (in.pre || in.post || in.mixture || in.bias || in.mask.valid_keys) {
    fail("attention: sequences with keys of their own have plain scores, and each its own valid_keys");
  }
  if (in.q_position.has_value() != in.r.has_value() || (in.r && in.q_position->sizes() != in.q.sizes())) {
    fail("attention: q_position, shaped as q, and r must be given together");
  }
  const std::int64_t heads = in.q.size(1), e = in.q.size(3), w = in.v.size(3);
  for (const SequenceKeys& one : in.sequences) {
    const at::Tensor &k = one.k, &v = one.v;
    const bool fits = k.dim() == 4 && v.dim() == 4 && k.size(0) == 1 && v.size(0) == 1 && k.size(1) > 0 &&
                      v.size(1) == k.size(1) && heads % k.size(1) == 0 && k.size(3) == e && v.size(3) == w &&
                      one.begin >= 0 && one.size > 0 && one.begin + one.size <= std::min(k.size(2), v.size(2));
    if (!fits) {
      fail("attention: a sequence's k must be [1, G, C, {}] and its v [1, G, C, {}] with rows [{}, {}), got {} and {}",
           e, w, one.begin, one.begin + one.size, shape_of(k), shape_of(v));
    }
    if (in.r && (in.r->dim() != 3 || in.r->size(0) != heads || in.r->size(1) < one.size || in.r->size(2) != e)) {
      fail("attention: r must be [{}, C, {}] with an offset for each of {} keys, got {}", heads, e, one.size,
           shape_of(*in.r));
    }
    if (one.valid_keys && (one.valid_keys->dim() != 2 || one.valid_keys->numel() != one.size)) {
      fail("attention: a sequence's valid_keys must be [1, {}], got {}", one.size, shape_of(*one.valid_keys));
    }
  }
}

AttentionInputs alone(const AttentionInputs& in, std::int64_t row) {
  const SequenceKeys& own = in.sequences[static_cast<std::size_t>(row)];
  AttentionInputs one = in;
  one.sequences.clear();
  one.q = in.q.narrow(0, row, 1);
  one.k = own.k.narrow(2, own.begin, own.size);
  one.v = own.v.narrow(2, own.begin, own.size);
  one.mask.valid_keys = own.valid_keys;
  if (in.r) {
    one.q_position = in.q_position->narrow(0, row, 1);
    one.r = in.r->narrow(1, in.r->size(1) - own.size, own.size);
  }
  return one;
}

}  // namespace

Backends<AttentionInputs>& attention_sequences_backends() {
  static Backends<AttentionInputs> all("attention_sequences");
  return all;
}

at::Tensor attention_of_sequences(const AttentionInputs& in, Implementation implementation) {
  check_sequences(in);
  const auto* together = attention_sequences_backends().choose_inside(implementation, in.q, in);
  if (together != nullptr) {
    attention_backends().choose(implementation, in.q, in);  // records what runs
    return together->run(in);
  }
  std::vector<at::Tensor> rows;
  for (std::int64_t row = 0; row < in.q.size(0); ++row) {
    rows.push_back(attention(alone(in, row), implementation));
  }
  return rows.size() == 1 ? rows[0] : at::cat(rows);
}

}  // namespace headroom::ops
