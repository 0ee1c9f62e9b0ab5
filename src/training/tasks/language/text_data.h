// What tasks on plain text share: token files of one tokenizer, batches, and the figures of a text.
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
  std::vector<std::shared_ptr<const data::TokenFile>> train;  // one, or one for each corpus of a mixture
  std::shared_ptr<const data::TokenFile> validation;
};

// Both splits of a run's data, prepared first if necessary. Throws UserError, also if the model's vocabulary size
// differs from the tokenizer's.
TextData open_text_data(const config::Config& config, const std::filesystem::path& cache);

// The text to evaluate a trained model on, encoded by its tokenizer: the request's files or, if there are none, the
// config's validation data. Throws UserError, also for a prepared token file of another tokenizer.
std::shared_ptr<const data::TokenFile> open_evaluation_text(const EvaluationRequest& request);

// A batch with "tokens" [batch, length + 1] int64, on the CPU.
models::Batch to_batch(const data::TokenBatch& batch);

// EvaluationData::rows() of a text: its chunks, and a quarter more for models with memory, which read some chunks
// twice.
double text_rows(const data::TokenFile& tokens, const config::Config& config);

// The figures of evaluate_text()'s sums.
Figures text_figures(const Sums& sums);

}  // namespace headroom::tasks
