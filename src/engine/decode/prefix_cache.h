// Caches decoding states, so that a prefix shared by several prompts is read only once.
//
// All prompts are split at the same positions, so prompts with a common prefix have bit-identical states at the chunk
// ends within it. An entry holds the state at the last chunk end before the end of its prompt. States at earlier chunk
// ends are restored by rewinding, if the model's caches support it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <list>
#include <span>
#include <vector>

#include "headroom/models/decoding.h"
#include "row.h"

namespace headroom::decode {

// Prompts are split after size / 4, size / 2 and every multiple of `size` tokens. The first two splits let short
// prefixes be shared.
struct PromptChunks {
  std::int64_t size = 1;

  // Returns the first chunk end greater than `read`.
  std::int64_t end_after(std::int64_t read) const {
    for (const std::int64_t end : {size / 4, size / 2}) {
      if (read < end) {
        return end;
      }
    }
    return (read / size + 1) * size;
  }
  // Returns the last chunk end of at most n tokens, or 0 if there is none.
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
  std::vector<TokenScore> scores;  // of all tokens but the first, each with `alternatives` alternatives; -1: none
  std::int64_t alternatives = -1;
};

struct CachedPrefix {
  std::int64_t tokens = 0;  // length; 0: nothing found
  models::DecodeState state;
  std::vector<TokenScore> scores;  // if requested: of tokens 2 to `tokens`, which have a predecessor
};

class PrefixCache {
 public:
  // Holds entries of up to `capacity` tokens in total; evicts the least recently used entries.
  PrefixCache(std::int64_t capacity, PromptChunks chunks) : capacity_(capacity), chunks_(chunks) {}

  // Returns the longest cached prefix of the prompt that ends at a chunk end and leaves at least one token to read.
  // With `alternatives` >= 0 the result includes the scores of its tokens, each with that many alternatives.
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
