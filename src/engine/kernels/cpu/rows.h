// Steps between rows of either type of numbers and the float32 that kernels compute with.
#pragma once

#include "engine/kernels/cpu/attention/heads.h"
#include "engine/kernels/cpu/products/buffer.h"

namespace headroom::kernels::detail {

// Rows [m, n] in float32: where they lie, or in `room`.
Strided<const float> floats(const Rows& from, std::int64_t m, std::int64_t n, Buffer& room);

// Both in the same type.
float dot(const Rows& a, const Rows& b, std::int64_t n);

// y[j] = sum_i x[i] w[i][j] for j in [0, columns), and sum_i x[i] w[j][i]: as in vector_product.h.
void vector_times_rows(const float* x, std::int64_t n, const Rows& w, std::int64_t columns, float* y);
void vector_times_columns(const float* x, std::int64_t n, const Rows& w, std::int64_t columns, float* y);

// Where rows [m, n] of float32 are computed that belong to `to`: there, or in `room`, from where put_back() rounds
// them.
Strided<float> workplace(const RowsOut& to, std::int64_t m, std::int64_t n, Buffer& room);
void put_back(Strided<float> rows, std::int64_t m, std::int64_t n, const RowsOut& to);

// to[c][i] = from[i][c] for i in [0, rows), c in [0, columns), rounded where `to` is bfloat16.
void put_transposed(Strided<const float> from, std::int64_t rows, std::int64_t columns, const RowsOut& to,
                    Buffer& room);

}  // namespace headroom::kernels::detail
