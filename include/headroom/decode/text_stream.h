// Tokens to text while they come: a code point may be spread over several tokens, and how a token is spelled may
// depend on the one before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/tokenizers/tokenizer.h"

namespace headroom::decode {

class TextStream {
 public:
  // `context`: the tokens before, whose text is not part of the stream.
  TextStream(const tokenizers::Tokenizer& tokenizer, std::vector<std::int32_t> context);

  // The text that this token completes: valid UTF-8, perhaps empty.
  std::string push(std::int32_t id);
  // What is left at the end, broken code points replaced.
  std::string finish();

 private:
  std::string pending() const;
  std::string release(std::string_view text);
  const tokenizers::Tokenizer& tokenizer_;
  std::vector<std::int32_t> ids_;  // [0, released_): already out, kept as context for the spelling of the rest
  std::size_t released_;
};

}  // namespace headroom::decode
