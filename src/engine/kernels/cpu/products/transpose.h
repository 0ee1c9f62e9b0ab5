// Rows to columns: the operand that a product wants the other way round.
#pragma once

#include <cstdint>

namespace headroom::kernels {

// A matrix whose rows are contiguous, row i at data + i * stride.
template <class T>
struct Strided {
  T* data;
  std::int64_t stride;
};

// to[c][i] = from[i][c] for i in [0, rows), c in [0, columns). The two must not overlap.
void transpose(Strided<const float> from, std::int64_t rows, std::int64_t columns, Strided<float> to);

}  // namespace headroom::kernels
