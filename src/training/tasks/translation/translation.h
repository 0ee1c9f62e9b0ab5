// Translating sentences: cross-entropy of the reference translations, and BLEU of those that beam search finds.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/pairs/pairs.h"
#include "headroom/models/encoder_decoder.h"
#include "training/tasks/task.h"

namespace headroom::tasks {

// Encoder-decoders, trained on sentence pairs (data::prepare_pairs) in batches of about equal lengths. The encoder
// reads a source's tokens and </s>; the decoder reads <s> and the target's tokens and predicts these and </s>. Pairs
// with a side that does not fit model.context_length are not trained on, and count for no loss; their sources are cut
// for BLEU. Figures: "loss" in nats a target token, </s> included, without label smoothing; "perplexity" exp(loss);
// "bleu", sacreBLEU's with 13a tokens, of the translations as text; "tokenised_bleu", multi-bleu.perl's of what blanks
// separate, and "compound_bleu" the same with compounds taken apart; "chrf", sacreBLEU's.
const Task& translation();

struct TranslateOptions {
  config::DecodingOptions decoding;
  std::int64_t batch_size = 32;   // sentences; for speed
  std::int64_t batch_tokens = 0;  // of the sources at most, padding included; for speed; 0: any
  nn::Context context;
  bool show_progress = false;
  ProcessGroup* peers = &alone();  // they translate the same sentences, and share their batches out
};

struct Translations {
  std::vector<std::string> texts;  // one line for each sentence; none where Ctrl-C (core/system.h) ended it early
  std::int64_t tokens = 0;         // of all texts, without their ends
  std::int64_t cut = 0;            // sentences that are longer than the model reads: only their beginnings count
};

// A blank sentence has a blank translation. Throws UserError when the tokenizer has no <s> and </s> or is not the
// model's.
Translations translate(const models::EncoderDecoder& model, const tokenizers::Tokenizer& tokenizer,
                       const std::vector<std::string>& sentences, const TranslateOptions& options);

}  // namespace headroom::tasks
