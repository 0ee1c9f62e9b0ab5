// The sizes of attention in the benchmarks `attention` and `layers`.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace headroom::bench {

struct AttentionSize {
  std::int64_t b, h, t, s, e;  // batch, heads, queries, keys, d_head
  bool has_relative = false;   // `attention` times it with relative positions, too
  std::string name() const { return fmt::format("B{} H{} T{} S{} e{}", b, h, t, s, e); }
};

inline constexpr AttentionSize kAttentionSizes[] = {{8, 8, 256, 256, 64},
                                                    {8, 10, 256, 512, 41, true},
                                                    {8, 2, 256, 512, 76, true},
                                                    {4, 16, 512, 1024, 64},
                                                    {4, 8, 1024, 1024, 64}};

}  // namespace headroom::bench
