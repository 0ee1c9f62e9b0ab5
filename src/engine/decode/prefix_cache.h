// What was kept of prompts, for others that begin alike.
//
// Every prompt is cut at the same places (pieces.h), so the state at the end of a piece is, bit for bit, what any
// prompt with the same beginning arrives at. An entry has the state at the last such end before its prompt's own; those
// at the earlier ends are had by going back, where the model's caches can.
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <vector>

#include "headroom/models/decoding.h"
#include "likeliest.h"
#include "pieces.h"

namespace headroom::decode {

// A prompt that was read.
struct ReadPrompt {
  std::vector<std::int64_t> tokens;
  models::DecodeState state;  // after `read` of them, whole pieces
  std::int64_t read = 0;
  std::vector<TokenScore> scores;  // of the tokens after the first, with so many `alternatives` each; -1: none
  std::int64_t alternatives = -1;
};

// The beginning of a prompt that need not be read.
struct KnownBeginning {
  std::int64_t tokens = 0;  // 0: none
  models::DecodeState state;
  std::vector<TokenScore> scores;  // where they are asked for: of as many tokens after the first
};

class PrefixCache {
 public:
  // Keeps states of up to `most` tokens, those used last.
  PrefixCache(std::int64_t most, Pieces pieces) : most_(most), pieces_(pieces) {}

  // The longest beginning of the prompt in whole pieces that leaves a token to read. With `alternatives` at least 0 its
  // tokens' scores are wanted, with so many alternatives each.
  KnownBeginning find(std::span<const std::int64_t> prompt, std::int64_t alternatives);
  void keep(ReadPrompt prompt);

  std::int64_t held() const { return held_; }  // tokens

 private:
  void drop(std::list<ReadPrompt>::iterator entry);

  std::int64_t most_, held_ = 0;
  Pieces pieces_;
  std::list<ReadPrompt> entries_;  // the last used first
};

}  // namespace headroom::decode
