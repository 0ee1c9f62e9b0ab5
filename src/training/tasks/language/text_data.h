// Shared code of tasks on plain text: token files of one tokenizer, batches, and figures.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "data/tokens/batches.h"
#include "data/tokens/token_file.h"
#include "training/tasks/task.h"

namespace headroom::tasks {

struct TextData {
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer;
  std::vector<std::shared_ptr<const data::TokenFile>> train;  // one file, or one per corpus of a mixture
  std::shared_ptr<const data::TokenFile> validation;
};

// Opens the training and validation data of a config; prepares them first if necessary. Throws UserError for unusable
// data, and if the model's vocabulary size differs from the tokenizer's.
TextData open_text_data(const config::Config& config, const std::filesystem::path& cache);

// Opens the text on which to evaluate a trained model, encoded by its tokenizer: the request's files or, if there are
// none, the config's validation data. Throws UserError for unusable data, and for a token file prepared with another
// tokenizer.
std::shared_ptr<const data::TokenFile> open_evaluation_text(const EvaluationRequest& request);

// Returns a batch with "tokens" [batch, length + 1] int64, on the CPU.
models::Batch to_batch(const data::TokenBatch& batch);

// Derives the figures from the sums of evaluate_text().
Figures text_figures(const Sums& sums);

}  // namespace headroom::tasks
