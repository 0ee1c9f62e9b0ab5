// Overflow-checked 64-bit integers for sums and products of sizes from arbitrary configs. Overflow throws UserError.
#pragma once

#include <cstdint>

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

}  // namespace headroom
