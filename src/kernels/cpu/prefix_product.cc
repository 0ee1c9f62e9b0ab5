#include "headroom/kernels/cpu/prefix_product.h"

#include <algorithm>

#include "headroom/kernels/cpu/buffer.h"
#include "headroom/kernels/cpu/tile_product.h"

namespace headroom::kernels {
namespace {

constexpr std::int64_t kChunk = 64;

class Prefix {
 public:
  Prefix(const PrefixProduct& shape, Strided<const float> a, Strided<const float> b, Strided<const float> c,
         Strided<float> y)
      : s_(shape),
        a_(a),
        b_(b),
        c_(c),
        y_(y),
        state_(s_.d_factor * s_.d_value),
        columns_(s_.d_factor * kChunk),
        meeting_(kChunk * kChunk) {
    state_.fill(0.0F);
  }

  // Columns [begin, end) join the state.
  void remember(std::int64_t begin, std::int64_t end) {
    for (std::int64_t j = begin; j < end; j += kChunk) {
      pack(j, std::min(kChunk, end - j));
      add_packed(j, std::min(kChunk, end - j));
    }
  }

  // Rows [begin, end) see the state only.
  void look_back(std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; i += kChunk) {
      through_state(i, std::min(kChunk, end - i), /*add=*/false);
    }
  }

  // n rows from i on and n columns from j on meet, the k-th row seeing columns up to the k-th (`earlier`) or from it
  // on; then the columns join the state.
  void meet(std::int64_t i, std::int64_t j, std::int64_t n, bool earlier) {
    pack(j, n);
    tile_product({n, n, s_.d_factor, a_.stride, n, n}, a_.data + i * a_.stride, columns_.data(), meeting_.data());
    for (std::int64_t k = 0; k < n; ++k) {
      float* row = meeting_.data() + k * n;
      earlier ? std::fill(row + k + 1, row + n, 0.0F) : std::fill(row, row + k, 0.0F);
    }
    tile_product({n, s_.d_value, n, n, c_.stride, y_.stride}, meeting_.data(), c_.data + j * c_.stride,
                 y_.data + i * y_.stride);
    through_state(i, n, /*add=*/true);
    add_packed(j, n);
  }

 private:
  void pack(std::int64_t j, std::int64_t n) {
    transpose({b_.data + j * b_.stride, b_.stride}, n, s_.d_factor, {columns_.data(), n});
  }
  void add_packed(std::int64_t j, std::int64_t n) {
    tile_product({s_.d_factor, s_.d_value, n, n, c_.stride, s_.d_value, true}, columns_.data(), c_.data + j * c_.stride,
                 state_.data());
  }
  void through_state(std::int64_t i, std::int64_t n, bool add) {
    tile_product({n, s_.d_value, s_.d_factor, a_.stride, s_.d_value, y_.stride, add}, a_.data + i * a_.stride,
                 state_.data(), y_.data + i * y_.stride);
  }

  PrefixProduct s_;
  Strided<const float> a_, b_, c_;
  Strided<float> y_;
  Buffer state_;    // [d_factor, d_value]
  Buffer columns_;  // [d_factor, n]: a chunk of b
  Buffer meeting_;  // [n, n]
};

}  // namespace

void prefix_product(const PrefixProduct& s, Strided<const float> a, Strided<const float> b, Strided<const float> c,
                    Strided<float> y) {
  Prefix prefix(s, a, b, c, y);
  switch (s.visible) {
    case Visible::all:
      prefix.remember(0, s.columns);
      prefix.look_back(0, s.rows);
      return;
    case Visible::earlier: {
      const std::int64_t before = s.columns - s.rows;
      prefix.remember(0, before);
      for (std::int64_t i = 0; i < s.rows; i += kChunk) {
        prefix.meet(i, before + i, std::min(kChunk, s.rows - i), true);
      }
      return;
    }
    case Visible::later: {
      const std::int64_t before = s.rows - s.columns;
      for (std::int64_t end = s.columns; end > 0; end -= std::min(kChunk, end)) {
        const std::int64_t n = std::min(kChunk, end);
        prefix.meet(before + end - n, end - n, n, false);
      }
      prefix.look_back(0, before);
      return;
    }
  }
}

}  // namespace headroom::kernels
