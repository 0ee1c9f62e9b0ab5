// What the tasks that read plain text share: its splits as token files of one tokenizer.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "data/tokens/token_file.h"
#include "evaluation_text.h"
#include "training/tasks/task.h"

namespace headroom::tasks {

struct TextData {
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer;
  std::vector<std::shared_ptr<const data::TokenFile>> train;  // of each corpus of a mixture, else a single one
  std::shared_ptr<const data::TokenFile> validation;
};

// Both splits of a run, made first where need be. Throws UserError, also where the model's vocabulary does not fit.
TextData open_text_data(const config::Config& config, const std::filesystem::path& cache);

// What sums of evaluate_text() tell.
Figures text_figures(const Sums& sums);

}  // namespace headroom::tasks
