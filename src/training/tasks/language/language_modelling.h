// Next-token prediction: cross-entropy, perplexity, bits per byte; for generated data with known answers also accuracy.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/synthetic/composition_task.h"
#include "data/tokens/batches.h"
#include "data/tokens/token_file.h"
#include "headroom/config/config.h"
#include "headroom/tokenizers/tokenizer.h"
#include "scoring.h"
#include "training/tasks/task.h"

namespace headroom::tasks {

// Trains on streams or chunks of a token file (data::make_batches). Figures: "loss", in nats per token, sum CE / N;
// "perplexity", exp(loss); "bits_per_byte", sum CE / ln 2 / bytes, where bytes is TokenFile::decoded_bytes() times N /
// (tokens of the file), an estimate for the N predicted tokens. To derive it, the sums contain the file's counts, once.
const Task& language_modelling();

// Evaluates the text as one stream with memory carried over; the first chunk has no context. For speed, the text is
// read as up to options.batch_size parallel streams that overlap enough to give the same result (data::EvaluationPass).
// If options.most_tokens is set, only pieces of the text are read, with the same memory as when reading the whole text.
// If options.stride is set, sliding windows are used instead, as for MGK's word-level models; stride 1 gives every
// prediction the full context. Throws UserError if the file's vocabulary differs from the model's, if the file is too
// short, and if a stride is set for a model with memory or exceeds context_length.
Evaluation evaluate_text(const models::Model& model, std::shared_ptr<const data::TokenFile> tokens,
                         const EvaluateOptions& options);

// EvaluationData::rows() of evaluate_text().
double evaluation_rows(const std::shared_ptr<const data::TokenFile>& tokens, const config::ModelOptions& model,
                       std::int64_t most_tokens);

// Returns tokenizer, length and hash: "sentencepiece-8000-1f3a9c02, 1234567 tokens, 9c41...". Hashes 64 sections of the
// file, so that large files are not read whole.
std::string data_identity(const data::TokenFile& tokens);
// Returns "1234567 tokens, 9c41...", with a hash of all tokens.
std::string content_identity(const data::TokenFile& tokens);

// Trains on synthetic sequences (data/synthetic/sequences.h). Figures: "loss" of the answers; "accuracy", the fraction
// of answers that are the likeliest token; "chance", the accuracy of guessing. Validation covers
// data.generated_validation rows (default 512) that training does not see.
const Task& synthetic_sequences();
// Returns the tokens of these rows as the bytes of a text.
std::unique_ptr<tokenizers::TextSource> synthetic_validation(const config::Config& config);

// The task "composition": language modelling on DCFormer's synthetic tasks (data/synthetic/composition_task.h).
struct AnswersReader {
  const tokenizers::Tokenizer& tokenizer;
  const config::ModelOptions& model;
  std::string where;  // prefix of error messages
  Prefix prefix = {};
};

// Returns the sequences that score the row's answers, in order: one sequence for all answers that fit the model's
// context, then one per further answer, so that each has as much context as possible.
std::vector<Sequence> answers_of(const data::CompositionRow& row, const AnswersReader& reader);

// language_modelling() with two more figures. "accuracy": the fraction of answers that greedy decoding would generate,
// given the preceding text of the row; "answer_perplexity": exp(-mean log-probability per answer). Both cover the first
// 256 validation rows or, if EvaluateOptions::most_tokens is set, an evenly spread part of these with at most that many
// tokens, but at least one row. They are missing for text from files, which has no rows.
const Task& composition();

// Shared code of tasks on plain text: token files of one tokenizer, batches, and figures.

struct TextData {
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer;
  std::vector<std::shared_ptr<const data::TokenFile>> train;  // one file, or one per corpus of a mixture
  std::shared_ptr<const data::TokenFile> validation;
};

// Opens the training and validation data of a config; prepares them first if necessary. Throws UserError for unusable
// data, and if the model's vocabulary size differs from the tokenizer's.
TextData open_text_data(const config::Config& config, const std::filesystem::path& cache);

// Opens the text on which to evaluate a trained model, encoded by its tokenizer: the request's files, or by default the
// config's validation data. Throws UserError for unusable data, and for a token file prepared with another tokenizer.
std::shared_ptr<const data::TokenFile> open_evaluation_text(const EvaluationRequest& request);

// Returns a batch with "tokens" [batch, length + 1] int64, on the CPU.
models::Batch to_batch(const data::TokenBatch& batch);

// Derives the figures from the sums of evaluate_text().
Figures text_figures(const Sums& sums);

}  // namespace headroom::tasks
