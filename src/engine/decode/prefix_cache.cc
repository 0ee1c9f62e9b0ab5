#include "prefix_cache.h"

#include <utility>

namespace headroom::decode {
namespace {

std::int64_t common_prefix(std::span<const std::int64_t> a, std::span<const std::int64_t> b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

// Returns whether `entry` makes `other` redundant.
bool covers(const CachedPrompt& entry, const CachedPrompt& other) {
  if (entry.read < other.read || entry.alternatives < other.alternatives ||
      common_prefix(entry.tokens, other.tokens) < other.read) {
    return false;
  }
  models::DecodeState state = entry.state;
  return state.rewind(entry.read - other.read);
}

}  // namespace

CachedPrefix PrefixCache::find(std::span<const std::int64_t> prompt, std::int64_t alternatives) {
  CachedPrefix found;
  const bool scored = alternatives >= 0;
  auto from = entries_.end();
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (alternatives > entry->alternatives) {
      continue;
    }
    // If scored, the entry must also contain the token after the prefix, whose score depends on the prefix.
    std::int64_t common = common_prefix(entry->tokens, prompt) - (scored ? 1 : 0);
    common = std::min({common, entry->read, std::ssize(prompt) - 1});
    const std::int64_t tokens = chunks_.last_end(std::max<std::int64_t>(common, 0));
    if (tokens <= found.tokens) {
      continue;
    }
    models::DecodeState state = entry->state;
    if (state.rewind(entry->read - tokens)) {
      found.tokens = tokens;
      found.state = std::move(state);
      from = entry;
    }
  }
  if (from == entries_.end()) {
    return found;
  }
  if (scored) {
    found.scores.assign(from->scores.begin(), from->scores.begin() + found.tokens);
    for (TokenScore& score : found.scores) {
      score.top.resize(std::min(score.top.size(), static_cast<std::size_t>(alternatives)));
    }
  }
  entries_.splice(entries_.begin(), entries_, from);
  return found;
}

void PrefixCache::keep(CachedPrompt prompt) {
  if (prompt.read == 0 || prompt.read > capacity_) {
    return;
  }
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const auto here = entry++;
    if (covers(*here, prompt)) {
      entries_.splice(entries_.begin(), entries_, here);
      return;
    }
    if (covers(prompt, *here)) {
      drop(here);
    }
  }
  held_ += prompt.read;
  entries_.push_front(std::move(prompt));
  while (held_ > capacity_) {
    drop(std::prev(entries_.end()));
  }
}

void PrefixCache::drop(std::list<CachedPrompt>::iterator entry) {
  held_ -= entry->read;
  entries_.erase(entry);
}

}  // namespace headroom::decode
