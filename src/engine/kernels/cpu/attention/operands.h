// Operands of attention's tile products, of rows in float32 or bfloat16. They are multiplied in float32 or, where the
// tensors are bfloat16 and the CPU multiplies that, in bfloat16: then numbers of the tensors stay what they are,
// probabilities and gradients of scores are rounded once. Sums are float32 in both.
#pragma once

#include <cstdint>

#include "engine/kernels/cpu/products/buffer.h"
#include "heads.h"

namespace headroom::kernels::detail {

// [m, k] by rows; bfloat16 filled up to sum_length(k).
using Left = Rows;

// [k, n] by rows, or by pairs of rows.
struct Right {
  const float* single = nullptr;
  const BFloat16* half = nullptr;
  std::int64_t stride = 0;

  // From row i, an even one, and column j on.
  Right from(std::int64_t i, std::int64_t j) const {
    return half == nullptr ? Right{single + i * stride + j, nullptr, stride}
                           : Right{nullptr, half + i * stride + 2 * j, stride};
  }
};

// C [m, n] = A [m, k] B [k, n], or +=.
struct TileSize {
  std::int64_t m, n, k;
};
void multiply(const TileSize& size, const Left& a, const Right& b, Strided<float> c, bool add = false);

// Some matrices [k, n] of one size that serve as right operands for many products; a thread's own.
class KeptOperands {
 public:
  KeptOperands(bool half, std::int64_t matrices, std::int64_t k, std::int64_t n);

  // Matrix i becomes `from` [rows, k] transposed, zero beyond its rows.
  void set_columns(std::int64_t i, const Rows& from, std::int64_t rows);
  // Matrix i becomes `from` [rows, columns], zero in the rows beyond.
  void set_rows(std::int64_t i, const Rows& from, std::int64_t rows, std::int64_t columns);
  Right operator[](std::int64_t i) const;

 private:
  BFloat16* halves(std::int64_t i) { return reinterpret_cast<BFloat16*>(data_.data()) + i * room_; }
  void set_pairs_of_columns(std::int64_t i, const Rows& from, std::int64_t rows);

  bool half_;
  std::int64_t k_, n_, room_;
  Buffer data_, work_;
};

// Operands that serve once; each stays until the next of its side.
class PassingOperands {
 public:
  explicit PassingOperands(bool half) : half_(half) {}

  Left left(const Rows& rows, std::int64_t m, std::int64_t k);
  Left left(Strided<const float> rows, std::int64_t m, std::int64_t k) {
    return left(Rows{rows.data, nullptr, rows.stride}, m, k);
  }
  // `from` [k, m] transposed.
  Left left_columns(const Rows& from, std::int64_t k, std::int64_t m);
  Right right(const Rows& rows, std::int64_t k, std::int64_t n);
  Right right(Strided<const float> rows, std::int64_t k, std::int64_t n) {
    return right(Rows{rows.data, nullptr, rows.stride}, k, n);
  }

 private:
  bool half_;
  Buffer left_, right_, turned_;
};

}  // namespace headroom::kernels::detail
