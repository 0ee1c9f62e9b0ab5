// Byte-pair encoding of one word: merges adjacent symbols, earliest-learnt pair first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace headroom::tokenizers {

struct Merge {
  std::int32_t left, right, result;  // token ids
};

class Merges {
 public:
  // `merges` must be in the order in which they were learnt. If a pair occurs twice, the last occurrence counts.
  explicit Merges(const std::vector<Merge>& merges);

  // Merges the symbols of a word in place until no adjacent pair is in the table. Equal pairs merge from left to right.
  // Takes O(n log n) time.
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

  std::vector<Slot> slots_;  // hash table; its size is a power of two, and it is at most half full
};

}  // namespace headroom::tokenizers
