// Predicting the next token of a text: cross-entropy, perplexity, bits per byte.
#pragma once

#include <memory>
#include <string>

#include "data/tokens/token_file.h"
#include "training/tasks/task.h"

namespace headroom::tasks {

// Trains on streams or chunks of a token file (data::make_batches). Figures: "loss" in nats a token, sum CE / N;
// "perplexity" exp(loss); "bits_per_byte", sum CE / ln 2 / UTF-8 bytes that the predicted tokens decode to, taken as
// TokenFile::decoded_bytes() times N / tokens of the file, because the first token is not predicted. So the file's own
// counts are among the sums, once, however much of it is predicted.
const Task& language_modelling();

// The text as one stream, memory carried, first chunk without context; read as up to `options.batch_size` streams side
// by side that begin early enough to give the same result (data::EvaluationPass). With
// options.stride, windows that overlap instead: the protocol of MGK's word-level models, where stride 1 gives every
// prediction all the context there is. Throws UserError when the file's vocabulary does not fit the model's, when the
// file is too short to predict anything, and for a stride with memory or beyond context_length.
Evaluation evaluate_text(const models::Model& model, std::shared_ptr<const data::TokenFile> tokens,
                         const EvaluateOptions& options);

// "sentencepiece-8000-1f3a9c02, 1234567 tokens, 9c41...": tokenizer, length and a hash of 64 stretches of the
// file, which identifies a corpus without reading all of a large one.
std::string data_identity(const data::TokenFile& tokens);
// "1234567 tokens, 9c41...", with a hash of all of them.
std::string content_identity(const data::TokenFile& tokens);

}  // namespace headroom::tasks
