// Sentence pairs as an encoder-decoder takes them.
#pragma once

#include <cstdint>
#include <vector>

#include "headroom/data/tokenizer.h"
#include "headroom/models/model.h"

namespace headroom::tasks {

struct SentenceEnds {
  std::int32_t begin = 0, end = 0;
};

// Throws MisuseError when the tokenizer has none.
SentenceEnds sentence_ends(const data::Tokenizer& tokenizer);

using Tokens = std::vector<std::int32_t>;

// What a batch holds at most, and always one sentence.
struct BatchLimits {
  std::int64_t rows = 1;
  std::int64_t tokens = 0;  // rows times the longest with its end; 0: any
};

// Where the batch ends that begins with `begin` of so many sentences, whose lengths, without ends, ascend.
template <class Length>
std::size_t batch_end(std::size_t begin, std::size_t count, const BatchLimits& limits, const Length& length) {
  std::size_t end = begin + 1;
  const auto fits = [&](std::size_t rows) {
    const auto wanted = static_cast<std::int64_t>(rows), longest = static_cast<std::int64_t>(length(end)) + 1;
    return wanted <= limits.rows && (limits.tokens == 0 || wanted * longest <= limits.tokens);
  };
  while (end < count && fits(end + 1 - begin)) {
    ++end;
  }
  return end;
}

// [rows, longest + 1] int64: each sentence and the end token, then padding; `valid` [the same] bool where any has some.
struct Sources {
  at::Tensor tokens, valid;
};
Sources source_batch(const std::vector<Tokens>& sentences, SentenceEnds ends);

// The tensors of models::EncoderDecoder::loss().
models::Batch pair_batch(const std::vector<Tokens>& sources, const std::vector<Tokens>& targets, SentenceEnds ends);

}  // namespace headroom::tasks
