#include "rows.h"

#include <algorithm>

#include "engine/kernels/cpu/attention/softmax_rows.h"
#include "engine/kernels/cpu/products/vector_product.h"

namespace headroom::kernels::detail {

Strided<const float> floats(const Rows& from, std::int64_t m, std::int64_t n, Buffer& room) {
  if (from.half == nullptr) {
    return {from.single, from.stride};
  }
  room.make_room(m * n);
  for (std::int64_t i = 0; i < m; ++i) {
    widen_numbers(from.half + i * from.stride, n, room.data() + i * n);
  }
  return {room.data(), n};
}

float dot(const Rows& a, const Rows& b, std::int64_t n) {
  return a.half == nullptr ? kernels::dot(a.single, b.single, n) : kernels::dot(a.half, b.half, n);
}

void vector_times_rows(const float* x, std::int64_t n, const Rows& w, std::int64_t columns, float* y) {
  if (w.half == nullptr) {
    kernels::vector_times_rows(x, n, Strided<const float>{w.single, w.stride}, 0, columns, y);
  } else {
    kernels::vector_times_rows(x, n, Strided<const BFloat16>{w.half, w.stride}, 0, columns, y);
  }
}

void vector_times_columns(const float* x, std::int64_t n, const Rows& w, std::int64_t columns, float* y) {
  if (w.half == nullptr) {
    kernels::vector_times_columns(x, n, Strided<const float>{w.single, w.stride}, 0, columns, y);
  } else {
    kernels::vector_times_columns(x, n, Strided<const BFloat16>{w.half, w.stride}, 0, columns, y);
  }
}

Strided<float> workplace(const RowsOut& to, std::int64_t m, std::int64_t n, Buffer& room) {
  if (to.half == nullptr) {
    return {to.single, to.stride};
  }
  room.make_room(m * n);
  return {room.data(), n};
}

void put_back(Strided<float> rows, std::int64_t m, std::int64_t n, const RowsOut& to) {
  for (std::int64_t i = 0; to.half != nullptr && i < m; ++i) {
    round_numbers(rows.data + i * rows.stride, n, to.half + i * to.stride);
  }
}

void put_transposed(Strided<const float> from, std::int64_t rows, std::int64_t columns, const RowsOut& to,
                    Buffer& room) {
  constexpr std::int64_t kRowsAtOnce = 64;  // few enough to be read again from the caches
  const std::int64_t most = to.half == nullptr ? columns : kRowsAtOnce;
  for (std::int64_t c = 0; c < columns; c += most) {
    const std::int64_t n = std::min(most, columns - c);
    const Strided<float> place = workplace(to.from(c), n, rows, room);
    kernels::transpose({from.data + c, from.stride}, rows, n, place);
    put_back(place, n, rows, to.from(c));
  }
}

}  // namespace headroom::kernels::detail
