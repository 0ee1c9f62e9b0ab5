// Byte-pair encoding of one word: neighbours merge, the pair that was learnt first before all others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace headroom::tokenizers {

struct Merge {
  std::int32_t left, right, result;  // ids
};

class Merges {
 public:
  // In the order in which they were learnt. A pair that occurs twice counts as the later one.
  explicit Merges(const std::vector<Merge>& merges);

  // Merges the symbols of a word until no pair of neighbours is known; of equal pairs the leftmost first. In time
  // n log n, in the place of the symbols.
  void apply(std::vector<std::int32_t>& symbols) const;

 private:
  struct Slot {
    std::int32_t left, right;  // left -1: free
    std::int32_t rank, result;
  };
  const Slot* find(std::int32_t left, std::int32_t right) const;
  std::size_t place(std::int32_t left, std::int32_t right) const;
  void apply_short(std::vector<std::int32_t>& symbols) const;
  void apply_long(std::vector<std::int32_t>& symbols) const;

  std::vector<Slot> slots_;  // a power of two, at most half full
};

}  // namespace headroom::tokenizers
