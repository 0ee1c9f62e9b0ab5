#include "model.h"

#include <array>
#include <bit>
#include <functional>
#include <queue>
#include <tuple>

namespace headroom::tokenizers {
namespace {

constexpr std::int32_t kNoSymbol = -1;
constexpr std::size_t kShortWord = 32;  // symbols; up to this length a linear scan is faster than a queue

}  // namespace

Merges::Merges(const std::vector<Merge>& merges)
    : slots_(std::bit_ceil(2 * merges.size() + 2), Slot{kNoSymbol, kNoSymbol, kNoSymbol, kNoSymbol}) {
  std::int32_t rank = 0;
  for (const Merge& merge : merges) {
    slots_[place(merge.left, merge.right)] = {merge.left, merge.right, rank++, merge.result};
  }
}

// Returns the slot of the pair, or the empty slot where it would be stored.
std::size_t Merges::place(std::int32_t left, std::int32_t right) const {
  constexpr std::uint64_t kMultiplier = 0x9e3779b97f4a7c15;
  const std::uint64_t key =
      static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  std::size_t at = (key * kMultiplier ^ (key * kMultiplier >> 32)) & (slots_.size() - 1);
  while (slots_[at].left != kNoSymbol && (slots_[at].left != left || slots_[at].right != right)) {
    at = (at + 1) & (slots_.size() - 1);
  }
  return at;
}

const Merges::Slot* Merges::find(std::int32_t left, std::int32_t right) const {
  const Slot& slot = slots_[place(left, right)];
  return slot.left == kNoSymbol ? nullptr : &slot;
}

void Merges::apply(std::vector<std::int32_t>& symbols) const {
  symbols.size() <= kShortWord ? apply_short(symbols) : apply_long(symbols);
}

void Merges::apply_short(std::vector<std::int32_t>& symbols) const {
  std::array<const Slot*, kShortWord> pairs{};  // merge of each symbol with its successor
  std::size_t n = symbols.size();
  for (std::size_t i = 0; i + 1 < n; ++i) {
    pairs[i] = find(symbols[i], symbols[i + 1]);
  }
  while (n > 1) {
    std::size_t best = n;
    for (std::size_t i = 0; i + 1 < n; ++i) {
      if (pairs[i] != nullptr && (best == n || pairs[i]->rank < pairs[best]->rank)) {
        best = i;
      }
    }
    if (best == n) {
      break;
    }
    symbols[best] = pairs[best]->result;
    for (std::size_t i = best + 1; i + 1 < n; ++i) {
      symbols[i] = symbols[i + 1];
      pairs[i] = pairs[i + 1];
    }
    --n;
    if (best > 0) {
      pairs[best - 1] = find(symbols[best - 1], symbols[best]);
    }
    if (best + 1 < n) {
      pairs[best] = find(symbols[best], symbols[best + 1]);
    }
  }
  symbols.resize(n);
}

// Uses a priority queue of pairs over a linked list of symbols. Stale entries stay in the queue: the pair that is now
// at their place has another rank.
void Merges::apply_long(std::vector<std::int32_t>& symbols) const {
  using Entry = std::tuple<std::int32_t, std::size_t, std::int32_t>;  // rank, place, result
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
  const std::size_t n = symbols.size();
  std::vector<std::size_t> next(n), previous(n);  // n: no neighbour
  for (std::size_t i = 0; i < n; ++i) {
    next[i] = i + 1;
    previous[i] = i == 0 ? n : i - 1;
  }
  const auto offer = [&](std::size_t i) {
    const Slot* pair = next[i] < n ? find(symbols[i], symbols[next[i]]) : nullptr;
    if (pair != nullptr) {
      queue.emplace(pair->rank, i, pair->result);
    }
  };
  for (std::size_t i = 0; i < n; ++i) {
    offer(i);
  }
  while (!queue.empty()) {
    const auto [rank, i, result] = queue.top();
    queue.pop();
    const Slot* pair = symbols[i] != kNoSymbol && next[i] < n ? find(symbols[i], symbols[next[i]]) : nullptr;
    if (pair == nullptr || pair->rank != rank) {
      continue;
    }
    const std::size_t gone = next[i];
    symbols[i] = result;
    symbols[gone] = kNoSymbol;
    next[i] = next[gone];
    if (next[i] < n) {
      previous[next[i]] = i;
    }
    offer(i);
    if (previous[i] < n) {
      offer(previous[i]);
    }
  }
  std::size_t n_left = 0;
  for (std::size_t i = 0; i < n; i = next[i]) {
    symbols[n_left++] = symbols[i];
  }
  symbols.resize(n_left);
}

}  // namespace headroom::tokenizers
