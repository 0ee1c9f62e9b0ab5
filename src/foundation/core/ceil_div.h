// Integer division that rounds up.
#pragma once

#include <concepts>
#include <type_traits>

namespace headroom {

// Returns n / by, rounded up; n >= 0, by > 0.
template <std::integral T>
constexpr T ceil_div(T n, std::type_identity_t<T> by) {
  return n / by + (n % by > 0 ? 1 : 0);
}

// Returns the smallest multiple of `step` that is at least n; n >= 0, step > 0.
template <std::integral T>
constexpr T round_up(T n, std::type_identity_t<T> step) {
  return ceil_div(n, step) * step;
}

}  // namespace headroom
