// Edge coverage of code compiled with -fsanitize-coverage=trace-pc. Without that option nothing is recorded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace headroom::fuzz {

#ifdef HEADROOM_COVERAGE

class Coverage {
 public:
  Coverage();
  void clear();
  // Returns whether, since clear(), an edge was taken for the first time, or its count reached a new power of two.
  bool is_new();
  std::size_t size() const;  // number of distinct edges taken so far

 private:
  std::vector<std::uint8_t> most_;
};

#else

class Coverage {
 public:
  void clear() {}
  bool is_new() { return false; }
  std::size_t size() const { return 0; }
};

#endif

}  // namespace headroom::fuzz
