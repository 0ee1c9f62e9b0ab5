// Which ways a run takes through code that was compiled with -fsanitize-coverage=trace-pc; elsewhere there is nothing
// to see.
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
  // Whether, since clear(), an edge was taken that never was before, or more often (by powers of two).
  bool is_new();
  std::size_t size() const;  // edges seen

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
