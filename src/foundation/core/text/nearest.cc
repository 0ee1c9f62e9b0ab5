#include "nearest.h"

#include <algorithm>
#include <cstddef>

namespace headroom {
namespace {

// Insertions, deletions, replacements and swaps of neighbours that lead from one word to the other.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Three rows of the table: swaps look two rows back.
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) {
    row[j] = j;
  }
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before.swap(last);
    last.swap(row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replaced, last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

}  // namespace

std::string nearest(std::string_view wrong, const std::vector<std::string>& candidates) {
  if (wrong.size() > 200) {
    return {};
  }
  // About one wrong letter in three, and never more than half the word.
  std::size_t best = std::min(std::max<std::size_t>(2, wrong.size() / 3), wrong.size() / 2) + 1;
  std::string found;
  for (const std::string& candidate : candidates) {
    const std::size_t longer = std::max(wrong.size(), candidate.size()),
                      shorter = std::min(wrong.size(), candidate.size());
    if (longer - shorter >= best) {
      continue;
    }
    const std::size_t distance = edit_distance(wrong, candidate);
    if (distance < best) {
      best = distance;
      found = candidate;
    }
  }
  return found;
}

}  // namespace headroom
