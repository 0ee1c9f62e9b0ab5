// Next-token prediction: cross-entropy, perplexity, bits per byte.
#pragma once

#include <memory>
#include <string>

#include "data/tokens/token_file.h"
#include "training/tasks/task.h"

namespace headroom::tasks {

// Trains on streams or chunks of a token file (data::make_batches). Figures: "loss", in nats per token, sum CE / N;
// "perplexity", exp(loss); "bits_per_byte", sum CE / ln 2 / bytes, where bytes is TokenFile::decoded_bytes() times N /
// (tokens of the file), an estimate for the N predicted tokens. For that purpose the sums contain the counts of the
// file, once.
const Task& language_modelling();

// Evaluates the text as one stream with memory carried over; the first chunk has no context. For speed, the text is
// read as up to options.batch_size parallel streams that overlap enough to give the same result (data::EvaluationPass).
// If options.most_tokens is set, only pieces of the text are read, with the memory that they have in the whole text.
// If options.stride is set, sliding windows are used instead, as for MGK's word-level models; stride 1 gives every
// prediction the full context. Throws UserError if the file's vocabulary differs from the model's, if the file is too
// short, and if a stride is set for a model with memory or exceeds context_length.
Evaluation evaluate_text(const models::Model& model, std::shared_ptr<const data::TokenFile> tokens,
                         const EvaluateOptions& options);

// EvaluationData::rows() of evaluate_text().
double evaluation_rows(const std::shared_ptr<const data::TokenFile>& tokens, const config::ModelOptions& model,
                       std::int64_t most_tokens);

// "sentencepiece-8000-1f3a9c02, 1234567 tokens, 9c41...": tokenizer, length and a hash of 64 sections of the file, so
// that a large file need not be read whole.
std::string data_identity(const data::TokenFile& tokens);
// "1234567 tokens, 9c41...", with a hash of all tokens.
std::string content_identity(const data::TokenFile& tokens);

// Trains on synthetic sequences (data/synthetic/sequences.h). Figures: "loss" of the answers; "accuracy", the fraction
// of answers that are the likeliest token; "chance", the accuracy of guessing. Validation covers
// data.generated_validation rows (default 512) that training does not see.
const Task& synthetic_sequences();

}  // namespace headroom::tasks
