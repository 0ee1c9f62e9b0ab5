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

// [rows, longest + 1] int64: each sentence and the end token, then padding; `valid` [the same] bool where any has some.
struct Sources {
  at::Tensor tokens, valid;
};
Sources source_batch(const std::vector<Tokens>& sentences, SentenceEnds ends);

// The tensors of models::EncoderDecoder::loss().
models::Batch pair_batch(const std::vector<Tokens>& sources, const std::vector<Tokens>& targets, SentenceEnds ends);

}  // namespace headroom::tasks
