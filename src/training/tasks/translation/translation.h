// Sentence translation, evaluated by the cross-entropy of the references and by BLEU and chrF of beam-search
// translations.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/pairs/pairs.h"
#include "headroom/models/encoder_decoder.h"
#include "headroom/models/model.h"
#include "headroom/tokenizers/tokenizer.h"
#include "training/tasks/task.h"

namespace headroom::tasks {

// Encoder-decoders, trained on sentence pairs (data::prepare_pairs) in batches of similar lengths. The encoder reads
// the source's tokens and </s>; the decoder reads <s> and the target's tokens, and predicts the target's tokens and
// </s>. Pairs with a side longer than model.context_length are excluded from training and from the loss; for BLEU and
// chrF, long sources are cut. Figures: "loss", in nats per target token, including </s>, without label smoothing;
// "perplexity", exp(loss); "bleu", as in sacreBLEU with 13a tokens; "tokenised_bleu", as in multi-bleu.perl for text
// split at blanks; "compound_bleu", like tokenised_bleu with compounds split; "chrf", as in sacreBLEU.
const Task& translation();

struct Translations {
  std::vector<std::string> texts;  // one line per sentence; empty if interrupted by Ctrl-C
  std::int64_t tokens = 0;         // of all texts, without end tokens
  std::int64_t cut = 0;            // number of sentences cut to the model's context
};

// Translates sentences; a blank sentence stays blank. The ranks of options.group divide the batches; every rank gets
// all translations. Throws UserError if the tokenizer lacks <s> or </s>, or is not the model's tokenizer.
Translations translate(const models::EncoderDecoder& model, const tokenizers::Tokenizer& tokenizer,
                       const std::vector<std::string>& sentences, const config::DecodingOptions& decoding,
                       const EvaluateOptions& options);

// Batches of sentence pairs for an encoder-decoder.

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
