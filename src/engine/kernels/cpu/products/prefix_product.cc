#include "prefix_product.h"

#include <algorithm>

#include "buffer.h"
#include "engine/kernels/cpu/attention/operands.h"
#include "engine/kernels/cpu/rows.h"

namespace headroom::kernels {
namespace {

constexpr std::int64_t kChunk = 64;

class Prefix {
 public:
  Prefix(const PrefixProduct& shape, const Rows& a, const Rows& b, const Rows& c, Strided<float> y)
      : s_(shape),
        a_(a),
        b_(b),
        c_(c),
        y_(y),
        state_(s_.d_factor * s_.d_value),
        columns_(s_.d_factor * kChunk),
        meeting_(kChunk * kChunk),
        chunk_(s_.half),
        passing_(s_.half) {
    state_.fill(0.0F);
  }

  // Columns [begin, end) join the state.
  void remember(std::int64_t begin, std::int64_t end) {
    for (std::int64_t j = begin; j < end; j += kChunk) {
      const std::int64_t n = std::min(kChunk, end - j);
      pack(j, n);
      add_packed(values(j, n), n);
    }
  }

  // Rows [begin, end) see the state only.
  void look_back(std::int64_t begin, std::int64_t end) {
    const detail::Right state = passing_.right({state_.data(), s_.d_value}, s_.d_factor, s_.d_value);
    for (std::int64_t i = begin; i < end; i += kChunk) {
      const std::int64_t n = std::min(kChunk, end - i);
      detail::multiply({n, s_.d_value, s_.d_factor}, rows(i, n), state, result(i));
    }
  }

  // n rows from i on and n columns from j on meet, the k-th row seeing columns up to the k-th (`earlier`) or from it
  // on; then the columns join the state.
  void meet(std::int64_t i, std::int64_t j, std::int64_t n, bool earlier) {
    pack(j, n);
    const detail::Left a = rows(i, n);
    const detail::Right c = values(j, n);
    detail::multiply({n, n, s_.d_factor}, a, passing_.right({columns_.data(), n}, s_.d_factor, n),
                     {meeting_.data(), n});
    for (std::int64_t k = 0; k < n; ++k) {
      float* row = meeting_.data() + k * n;
      earlier ? std::fill(row + k + 1, row + n, 0.0F) : std::fill(row, row + k, 0.0F);
    }
    detail::multiply({n, s_.d_value, n}, passing_.left({meeting_.data(), n}, n, n), c, result(i));
    detail::multiply({n, s_.d_value, s_.d_factor}, a,
                     passing_.right({state_.data(), s_.d_value}, s_.d_factor, s_.d_value), result(i), /*add=*/true);
    add_packed(c, n);
  }

 private:
  detail::Left rows(std::int64_t i, std::int64_t n) { return chunk_.left(a_.from(i), n, s_.d_factor); }
  detail::Right values(std::int64_t j, std::int64_t n) { return chunk_.right(c_.from(j), n, s_.d_value); }
  Strided<float> result(std::int64_t i) { return {y_.data + i * y_.stride, y_.stride}; }
  void pack(std::int64_t j, std::int64_t n) {
    transpose(detail::floats(b_.from(j), n, s_.d_factor, room_), n, s_.d_factor, {columns_.data(), n});
  }
  void add_packed(const detail::Right& c, std::int64_t n) {
    detail::multiply({s_.d_factor, s_.d_value, n}, passing_.left({columns_.data(), n}, s_.d_factor, n), c,
                     {state_.data(), s_.d_value}, /*add=*/true);
  }

  PrefixProduct s_;
  Rows a_, b_, c_;
  Strided<float> y_;
  Buffer state_;                             // [d_factor, d_value]
  Buffer columns_;                           // [d_factor, n]: a chunk of b
  Buffer meeting_;                           // [n, n]
  Buffer room_;                              // [n, d_factor]: a chunk of b in float32
  detail::PassingOperands chunk_, passing_;  // a's rows and c's; what the rest of the products take
};

}  // namespace

void prefix_product(const PrefixProduct& s, const Rows& a, const Rows& b, const Rows& c, Strided<float> y) {
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
