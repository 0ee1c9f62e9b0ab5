// How progress reads: the bar of a terminal and the plain line elsewhere. No clock, no terminal: testable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace headroom::detail {

struct ProgressState {
  std::string what, unit, note;
  std::int64_t total = 0, done = 0, started_at = 0;  // units; total 0: unknown
  double seconds = 0;                                // since started_at
  bool last = false;
};

// At most `columns` wide: the bar shrinks first, then the note goes, from its last part ("loss 3.2, 12 tokens/s") on,
// the time left and the rate.
std::string progress_bar(const ProgressState& state, std::size_t columns, bool blocks);
std::string progress_line(const ProgressState& state);

}  // namespace headroom::detail
