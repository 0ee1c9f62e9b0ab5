#include "coverage.h"

#include <algorithm>
#include <array>
#include <bit>

namespace {

constexpr std::size_t kEdges = std::size_t{1} << 16;
constinit std::array<std::uint8_t, kEdges> taken{};  // times that each edge was taken, at the edge's hash
constinit std::uint64_t before = 0;

}  // namespace

// The compiler inserts a call at the start of every basic block. A data race may lose a count, which does no harm.
extern "C" void __sanitizer_cov_trace_pc() {
  const std::uint64_t here =
      (reinterpret_cast<std::uintptr_t>(__builtin_return_address(0)) * 0x9e3779b97f4a7c15U) >> 48U;
  std::uint8_t& count = taken[(here ^ before) % kEdges];
  if (count < 255) {
    ++count;
  }
  before = here >> 1U;
}

namespace headroom::fuzz {

Coverage::Coverage() : most_(kEdges) {}

void Coverage::clear() {
  taken.fill(0);
}

bool Coverage::is_new() {
  bool any = false;
  for (std::size_t i = 0; i < kEdges; ++i) {
    const auto often = static_cast<std::uint8_t>(std::bit_width(taken[i]));
    any = any || often > most_[i];
    most_[i] = std::max(most_[i], often);
  }
  return any;
}

std::size_t Coverage::size() const {
  return static_cast<std::size_t>(std::count_if(most_.begin(), most_.end(), [](std::uint8_t n) { return n > 0; }));
}

}  // namespace headroom::fuzz
