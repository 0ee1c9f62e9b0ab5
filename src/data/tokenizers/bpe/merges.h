// Byte-pair encoding of one word: adjacent symbols merge, the pair learnt first before all others.
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
  // `merges` in the order in which they were learnt. Of duplicate pairs the last one counts.
  explicit Merges(const std::vector<Merge>& merges);

  // Merges the symbols of a word in place until no adjacent pair is known; of equal pairs the leftmost first. Takes
  // O(n log n) time.
  void apply(std::vector<std::int32_t>& symbols) const;

 private:
  struct Slot {
    std::int32_t left, right;  // left == -1: empty slot
    std::int32_t rank, result;
  };
  const Slot* find(std::int32_t left, std::int32_t right) const;
  std::size_t place(std::int32_t left, std::int32_t right) const;
  void apply_short(std::vector<std::int32_t>& symbols) const;
  void apply_long(std::vector<std::int32_t>& symbols) const;

  std::vector<Slot> slots_;  // a hash table: a power of two in size, at most half full
};

}  // namespace headroom::tokenizers
