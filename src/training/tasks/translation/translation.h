// Translation of sentences: cross-entropy of references, and BLEU and chrF of translations by beam search.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/pairs/pairs.h"
#include "headroom/models/encoder_decoder.h"
#include "training/tasks/task.h"

namespace headroom::tasks {

// Encoder-decoders, trained on sentence pairs (data::prepare_pairs) in batches of similar lengths. The encoder reads
// the source's tokens and </s>; the decoder reads <s> and the target's tokens, and predicts these and </s>. Pairs with
// a side that does not fit model.context_length are excluded from training and from the loss; for BLEU their sources
// are cut. Figures: "loss" in nats a target token, </s> included, without label smoothing; "perplexity", exp(loss);
// "bleu", sacreBLEU's with 13a tokens; "tokenised_bleu", multi-bleu.perl's of text split at blanks; "compound_bleu",
// the same with split compounds; "chrf", sacreBLEU's.
const Task& translation();

struct TranslateOptions {
  config::DecodingOptions decoding;
  std::int64_t batch_size = 32;   // sentences; affects only speed
  std::int64_t batch_tokens = 0;  // most source tokens, with padding; 0: no limit; affects only speed
  nn::Context context;
  bool show_progress = false;
  ProcessGroup* group = &alone();  // its ranks divide the batches; all get all translations
};

struct Translations {
  std::vector<std::string> texts;  // one line for each sentence; empty if interrupted by Ctrl-C
  std::int64_t tokens = 0;         // of all texts, without end tokens
  std::int64_t cut = 0;            // number of sentences cut to the model's context
};

// Translates blank sentences to blank ones. Throws UserError if the tokenizer has no <s> and </s> or is not the
// model's.
Translations translate(const models::EncoderDecoder& model, const tokenizers::Tokenizer& tokenizer,
                       const std::vector<std::string>& sentences, const TranslateOptions& options);

}  // namespace headroom::tasks
