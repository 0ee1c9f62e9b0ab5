// A cache of prompts' decoding states, for prompts with a common prefix.
//
// Every prompt is split into the same chunks, so the state at the end of a chunk is, bit for bit, that of any prompt
// with the same prefix. An entry holds the state at the last chunk end before its prompt's end; states at earlier chunk
// ends are restored by rewinding, if the model's caches can.
#pragma once

#include <algorithm>
#include <cstdint>
#include <list>
#include <span>
#include <vector>

#include "headroom/models/decoding.h"
#include "sample.h"

namespace headroom::decode {

// Chunks end at a quarter, a half and the whole of `size` tokens, so that short prefixes can be shared, and at every
// multiple of it.
struct PromptChunks {
  std::int64_t size = 1;

  // The first end after `read` tokens.
  std::int64_t end_after(std::int64_t read) const {
    for (const std::int64_t end : {size / 4, size / 2}) {
      if (read < end) {
        return end;
      }
    }
    return (read / size + 1) * size;
  }
  // The last end that is at most n; 0: none.
  std::int64_t last_end(std::int64_t n) const {
    std::int64_t last = n / size * size;
    for (const std::int64_t end : {size / 4, size / 2}) {
      last = end <= n ? std::max(last, end) : last;
    }
    return last;
  }
};

struct CachedPrompt {
  std::vector<std::int64_t> tokens;
  models::DecodeState state;  // after `read` tokens, a chunk end
  std::int64_t read = 0;
  std::vector<TokenScore> scores;  // of the tokens after the first, with `alternatives` each; -1: no scores
  std::int64_t alternatives = -1;
};

struct CachedPrefix {
  std::int64_t tokens = 0;  // length; 0: nothing found
  models::DecodeState state;
  std::vector<TokenScore> scores;  // if asked for: of `tokens` tokens after the first
};

class PrefixCache {
 public:
  // Holds states of up to `capacity` tokens; evicts the least recently used.
  PrefixCache(std::int64_t capacity, PromptChunks chunks) : capacity_(capacity), chunks_(chunks) {}

  // The longest cached prefix of the prompt that ends at a chunk end and leaves at least one token to read. With
  // `alternatives` >= 0 it includes its tokens' scores, with that many alternatives each.
  CachedPrefix find(std::span<const std::int64_t> prompt, std::int64_t alternatives);
  void keep(CachedPrompt prompt);

  std::int64_t held() const { return held_; }  // tokens

 private:
  void drop(std::list<CachedPrompt>::iterator entry);

  std::int64_t capacity_, held_ = 0;
  PromptChunks chunks_;
  std::list<CachedPrompt> entries_;  // most recently used first
};

}  // namespace headroom::decode
