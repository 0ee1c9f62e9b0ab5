#include "prefix_product.h"

#include <algorithm>

#include "engine/kernels/cpu/matmul/matrix.h"

namespace headroom::kernels {
namespace {

constexpr std::int64_t kChunk = 64;

class PrefixScan {
 public:
  PrefixScan(const PrefixProductShape& shape, const Rows& a, const Rows& b, const Rows& c, Strided<float> y)
      : s_(shape),
        a_(a),
        b_(b),
        c_(c),
        y_(y),
        state_(s_.d_factor * s_.d_value),
        columns_(s_.d_factor * kChunk),
        scores_(kChunk * kChunk),
        chunk_(s_.bf16),
        scratch_(s_.bf16) {
    state_.fill(0.0F);
  }

  // Adds columns [begin, end) to the state.
  void add_columns(std::int64_t begin, std::int64_t end) {
    for (std::int64_t j = begin; j < end; j += kChunk) {
      const std::int64_t n = std::min(kChunk, end - j);
      pack(j, n);
      add_packed(values(j, n), n);
    }
  }

  // Computes rows [begin, end) from the state alone.
  void apply_state(std::int64_t begin, std::int64_t end) {
    const Right state = scratch_.right({state_.data(), s_.d_value}, s_.d_factor, s_.d_value);
    for (std::int64_t i = begin; i < end; i += kChunk) {
      const std::int64_t n = std::min(kChunk, end - i);
      multiply({n, s_.d_value, s_.d_factor}, rows(i, n), state, result(i));
    }
  }

  // Computes n rows from i on with n columns from j on and the state, then adds the columns to the state. Row k sees
  // the chunk's columns up to the k-th (`earlier`), or from the k-th on.
  void process_chunk(std::int64_t i, std::int64_t j, std::int64_t n, bool earlier) {
    pack(j, n);
    const Left a = rows(i, n);
    const Right c = values(j, n);
    multiply({n, n, s_.d_factor}, a, scratch_.right({columns_.data(), n}, s_.d_factor, n), {scores_.data(), n});
    for (std::int64_t k = 0; k < n; ++k) {
      float* row = scores_.data() + k * n;
      earlier ? std::fill(row + k + 1, row + n, 0.0F) : std::fill(row, row + k, 0.0F);
    }
    multiply({n, s_.d_value, n}, scratch_.left({scores_.data(), n}, n, n), c, result(i));
    multiply({n, s_.d_value, s_.d_factor}, a, scratch_.right({state_.data(), s_.d_value}, s_.d_factor, s_.d_value),
             result(i), /*add=*/true);
    add_packed(c, n);
  }

 private:
  Left rows(std::int64_t i, std::int64_t n) { return chunk_.left(a_.from(i), n, s_.d_factor); }
  Right values(std::int64_t j, std::int64_t n) { return chunk_.right(c_.from(j), n, s_.d_value); }
  Strided<float> result(std::int64_t i) { return {y_.data + i * y_.stride, y_.stride}; }
  void pack(std::int64_t j, std::int64_t n) {
    transpose(as_float32(b_.from(j), n, s_.d_factor, staging_), n, s_.d_factor, {columns_.data(), n});
  }
  void add_packed(const Right& c, std::int64_t n) {
    multiply({s_.d_factor, s_.d_value, n}, scratch_.left({columns_.data(), n}, s_.d_factor, n), c,
             {state_.data(), s_.d_value}, /*add=*/true);
  }

  PrefixProductShape s_;
  Rows a_, b_, c_;
  Strided<float> y_;
  Buffer state_;                     // [d_factor, d_value]
  Buffer columns_;                   // [d_factor, n]: a chunk of b
  Buffer scores_;                    // [n, n]
  Buffer staging_;                   // [n, d_factor]: a chunk of b in float32
  ScratchOperands chunk_, scratch_;  // operands from rows of a and c; all other operands
};

}  // namespace

void prefix_product(const PrefixProductShape& s, const Rows& a, const Rows& b, const Rows& c, Strided<float> y) {
  PrefixScan prefix(s, a, b, c, y);
  switch (s.visible) {
    case Visible::all:
      prefix.add_columns(0, s.columns);
      prefix.apply_state(0, s.rows);
      return;
    case Visible::earlier: {
      const std::int64_t before = s.columns - s.rows;
      prefix.add_columns(0, before);
      for (std::int64_t i = 0; i < s.rows; i += kChunk) {
        prefix.process_chunk(i, before + i, std::min(kChunk, s.rows - i), true);
      }
      return;
    }
    case Visible::later: {
      const std::int64_t before = s.rows - s.columns;
      for (std::int64_t end = s.columns; end > 0; end -= std::min(kChunk, end)) {
        const std::int64_t n = std::min(kChunk, end);
        prefix.process_chunk(before + end - n, end - n, n, false);
      }
      prefix.apply_state(0, before);
      return;
    }
  }
}

}  // namespace headroom::kernels
