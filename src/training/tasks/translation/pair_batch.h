// Batches of sentence pairs for an encoder-decoder.
#pragma once

#include <cstdint>
#include <vector>

#include "data/pairs/pairs.h"
#include "headroom/models/model.h"
#include "headroom/tokenizers/tokenizer.h"

namespace headroom::tasks {

struct SentenceEnds {
  std::int32_t begin = 0, end = 0;  // of targets
  std::int32_t source_end = 0;
};

// Throws UserError if the tokenizer lacks these tokens.
SentenceEnds sentence_ends(const tokenizers::Tokenizer& tokenizer);

using Tokens = std::vector<std::int32_t>;

using data::BatchLimits;

// Calls data::batch_end() with lengths that exclude the end tokens.
template <class Length>
std::size_t batch_end(std::size_t begin, std::size_t count, const BatchLimits& limits, const Length& length) {
  const auto padded = [&](std::int64_t i) {
    return static_cast<std::int64_t>(length(static_cast<std::size_t>(i))) + 1;
  };
  return static_cast<std::size_t>(
      data::batch_end(static_cast<std::int64_t>(begin), static_cast<std::int64_t>(count), limits, padded));
}

// tokens [rows, longest + 1] int64: each sentence, the end token and padding. valid: bool of the same shape, undefined
// if there is no padding.
struct Sources {
  at::Tensor tokens, valid;
};
Sources source_batch(const std::vector<Tokens>& sentences, SentenceEnds ends);

// Returns the batch for models::EncoderDecoder::loss().
models::Batch pair_batch(const std::vector<Tokens>& sources, const std::vector<Tokens>& targets, SentenceEnds ends);

}  // namespace headroom::tasks
