// Where a prompt is cut: places that are the same for every prompt, so that two of them that begin alike are read
// alike.
#pragma once

#include <algorithm>
#include <cstdint>

namespace headroom::decode {

// Pieces end at a quarter, a half and the whole of `most` tokens, so that short beginnings can be shared, and at every
// multiple of it.
struct Pieces {
  std::int64_t most = 1;

  std::int64_t end_after(std::int64_t read) const {
    for (const std::int64_t end : {most / 4, most / 2}) {
      if (read < end) {
        return end;
      }
    }
    return (read / most + 1) * most;
  }
  // The last end that is no further than n; 0: none.
  std::int64_t last_end(std::int64_t n) const {
    std::int64_t last = n / most * most;
    for (const std::int64_t end : {most / 4, most / 2}) {
      last = end <= n ? std::max(last, end) : last;
    }
    return last;
  }
};

}  // namespace headroom::decode
