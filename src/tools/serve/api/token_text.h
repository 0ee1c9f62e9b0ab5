// How a token is written by itself, in lists of log-probabilities: each id its own way, so that it can be told back.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "headroom/store/huggingface.h"
#include "headroom/tokenizers/tokenizer.h"

namespace headroom::serve {

// Its text as it is inside a text, blank in front included; "bytes:\xe2\x82" where that is no text by itself; a special
// token's name; "token:17" where it has none of these, or another id has the same.
class TokenText {
 public:
  TokenText(const tokenizers::Tokenizer& tokenizer, const store::SpecialTokens& special);

  const std::string& of(std::int64_t id) const { return spelled_[static_cast<std::size_t>(id)]; }
  std::int64_t size() const { return std::ssize(spelled_); }

 private:
  std::vector<std::string> spelled_;
};

}  // namespace headroom::serve
