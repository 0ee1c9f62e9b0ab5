// Overflow-checked 64-bit integers for sums and products of sizes from arbitrary configs. Overflow throws UserError.
#pragma once

#include <cstdint>
#include <vector>

#include "headroom/core/error.h"

namespace headroom {

class Exact {
 public:
  constexpr Exact(std::int64_t value) : value_(value) {}  // NOLINT: converts implicitly
  constexpr std::int64_t value() const { return value_; }

  friend Exact operator+(Exact a, Exact b) {
    std::int64_t sum = 0;
    return __builtin_add_overflow(a.value_, b.value_, &sum) ? overflow() : Exact(sum);
  }
  friend Exact operator*(Exact a, Exact b) {
    std::int64_t product = 0;
    return __builtin_mul_overflow(a.value_, b.value_, &product) ? overflow() : Exact(product);
  }
  Exact& operator+=(Exact other) { return *this = *this + other; }

 private:
  [[noreturn]] static Exact overflow() { user_error("cost: the model is too large: a count exceeds 63 bits"); }
  std::int64_t value_;
};

using Sizes = std::vector<Exact>;

inline Exact sum_of(const Sizes& sizes) {
  Exact sum = 0;
  for (const Exact& size : sizes) {
    sum += size;
  }
  return sum;
}

inline Sizes operator+(Sizes a, const Sizes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace headroom
