// Sentence translation, evaluated by the cross-entropy of the references and by BLEU and chrF of beam-search
// translations.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/pairs/pairs.h"
#include "headroom/models/encoder_decoder.h"
#include "training/tasks/task.h"

namespace headroom::tasks {

// Encoder-decoders, trained on sentence pairs (data::prepare_pairs) in batches of similar lengths. The encoder reads
// the source's tokens and </s>; the decoder reads <s> and the target's tokens, and predicts the target's tokens and
// </s>. Pairs with a side longer than model.context_length are excluded from training and from the loss; for BLEU and
// chrF, long sources are cut. Figures: "loss", in nats per target token, including </s>, without label smoothing;
// "perplexity", exp(loss); "bleu", as in sacreBLEU with 13a tokens; "tokenised_bleu", as in multi-bleu.perl for text
// split at blanks; "compound_bleu", like tokenised_bleu with compounds split; "chrf", as in sacreBLEU.
const Task& translation();

struct TranslateOptions {
  config::DecodingOptions decoding;
  std::int64_t batch_size = 32;   // sentences; affects only speed
  std::int64_t batch_tokens = 0;  // maximum source tokens, with padding; 0: no limit; affects only speed
  nn::Context context;
  bool show_progress = false;
  ProcessGroup* group = &alone();  // the ranks divide the batches; every rank gets all translations
};

struct Translations {
  std::vector<std::string> texts;  // one line per sentence; empty if interrupted by Ctrl-C
  std::int64_t tokens = 0;         // of all texts, without end tokens
  std::int64_t cut = 0;            // number of sentences cut to the model's context
};

// Blank sentences are translated as blank. Throws UserError if the tokenizer lacks <s> or </s>, or is not the model's
// tokenizer.
Translations translate(const models::EncoderDecoder& model, const tokenizers::Tokenizer& tokenizer,
                       const std::vector<std::string>& sentences, const TranslateOptions& options);

}  // namespace headroom::tasks
