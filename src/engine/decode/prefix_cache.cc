#include "prefix_cache.h"

#include <algorithm>
#include <utility>

namespace headroom::decode {
namespace {

std::int64_t common_beginning(std::span<const std::int64_t> a, std::span<const std::int64_t> b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

// Whether all that the other entry gives can be had of this one.
bool covers(const ReadPrompt& entry, const ReadPrompt& other) {
  if (entry.read < other.read || entry.alternatives < other.alternatives ||
      common_beginning(entry.tokens, other.tokens) < other.read) {
    return false;
  }
  models::DecodeState state = entry.state;
  return state.rewind(entry.read - other.read);
}

}  // namespace

KnownBeginning PrefixCache::find(std::span<const std::int64_t> prompt, std::int64_t alternatives) {
  KnownBeginning known;
  const bool scored = alternatives >= 0;
  auto from = entries_.end();
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (alternatives > entry->alternatives) {
      continue;
    }
    // The token after a beginning is scored by what was read before it: an entry has that score if it has the token.
    std::int64_t common = common_beginning(entry->tokens, prompt) - (scored ? 1 : 0);
    common = std::min({common, entry->read, std::ssize(prompt) - 1});
    const std::int64_t tokens = pieces_.last_end(std::max<std::int64_t>(common, 0));
    if (tokens <= known.tokens) {
      continue;
    }
    models::DecodeState state = entry->state;
    if (state.rewind(entry->read - tokens)) {
      known.tokens = tokens;
      known.state = std::move(state);
      from = entry;
    }
  }
  if (from == entries_.end()) {
    return known;
  }
  if (scored) {
    known.scores.assign(from->scores.begin(), from->scores.begin() + known.tokens);
    for (TokenScore& score : known.scores) {
      score.top.resize(std::min(score.top.size(), static_cast<std::size_t>(alternatives)));
    }
  }
  entries_.splice(entries_.begin(), entries_, from);
  return known;
}

void PrefixCache::keep(ReadPrompt prompt) {
  if (prompt.read == 0 || prompt.read > most_) {
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
  while (held_ > most_) {
    drop(std::prev(entries_.end()));
  }
}

void PrefixCache::drop(std::list<ReadPrompt>::iterator entry) {
  held_ -= entry->read;
  entries_.erase(entry);
}

}  // namespace headroom::decode
