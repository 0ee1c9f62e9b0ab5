// Zero-shot and few-shot benchmarks (`evaluate --task`), scored by a language model's log-probabilities. A question is
// right if
//   lambada          greedy decoding writes the last word
//   blimp            the grammatical sentence has the higher log-probability
//   cbt              the answer with the rest of its sentence has the highest log-probability per token
//   multiple choice  the right answer has the highest log-probability ("acc"), or the highest per character
//                    ("acc_norm"), as in lm-evaluation-harness
//   composition      greedy decoding writes the answer (DCFormer's synthetic tasks)
//   target_loss      greedy decoding writes the target; its main result is the perplexity per target token
// Ties count as wrong.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "headroom/core/json.h"
#include "headroom/models/language_model.h"
#include "headroom/tokenizers/tokenizer.h"
#include "training/tasks/language/scoring.h"
#include "training/tasks/task.h"

namespace headroom::zero_shot {

struct ZeroShotRequest {
  std::string task;            // one of zero_shot_tasks()
  std::filesystem::path data;  // a file, a folder or a tar archive
  config::DataOptions run;     // composition without `data`: used to generate the run's validation rows
  std::int64_t shots = 0;      // solved examples before each question
  // A file, folder or archive with examples; empty: use the other questions of `data`, with a warning.
  std::filesystem::path shots_from;
  tasks::Prefix prefix;
  bool items = false;     // whether to return items
  bool by_shots = false;  // composition: whether to return by_shots
  tasks::EvaluateOptions options;
};

struct Tally {
  std::int64_t questions = 0, right = 0, right_normalised = 0;
  double log_probability = 0.0;  // of the right answers
  std::int64_t tokens = 0;       // number of tokens in the right answers
  double accuracy() const { return static_cast<double>(right) / static_cast<double>(questions); }
  double accuracy_normalised() const { return static_cast<double>(right_normalised) / static_cast<double>(questions); }
  Tally& operator+=(const Tally& other);
};

struct ZeroShotResult {
  std::string task;
  std::int64_t shots = 0;
  std::string shots_from;
  tasks::PrefixKind begin = tasks::PrefixKind::line_end;
  bool normalised = false, perplexity = false;  // whether the task has these metrics
  bool of_tokens = false;                       // true: perplexity per token; false: per answer
  bool mean_of_subsets = true;                  // true: accuracy() is the mean over subsets; false: over questions
  std::map<std::string, Tally> subsets;         // by name; a single "" if there are no subsets
  std::map<std::size_t, Tally> by_shots;        // composition: by the number of examples before an answer
  // One per question: "question" (file:line), "subset", "right", "gold", and "choices" with "context", "continuation",
  // "log_probability" (nats), "tokens", "greedy". Composition: one per answer, "log_probability" and "tokens" instead
  // of "gold" and "choices".
  std::vector<Json> items;
  std::int64_t truncated = 0, texts = 0, tokens = 0;
  double seconds = 0.0;
  bool complete = true;  // false after Ctrl-C; the result is then unusable

  Tally whole() const;
  double accuracy() const;
  double accuracy_error() const;  // standard error of accuracy()
};

std::vector<std::string> zero_shot_tasks();

// Throws UserError with the nearest name if there is no such task.
void check_zero_shot_task(const std::string& name);

// Throws UserError if the task is unknown, the data cannot be read or belong to another task, the task does not support
// shots, or the data have too few rows for them.
ZeroShotResult evaluate_zero_shot(const models::LanguageModel& model, const tokenizers::Tokenizer& tokenizer,
                                  const ZeroShotRequest& request);

// Implements --task composition; called by evaluate_zero_shot().
ZeroShotResult evaluate_composition(const models::LanguageModel& model, const tokenizers::Tokenizer& tokenizer,
                                    const ZeroShotRequest& request);

// Keys: "task", "accuracy", "subsets" (name -> accuracy), ..., and the keys of lm-evaluation-harness: "results",
// "groups", "group_subtasks", "configs", "versions", "n-shot", "higher_is_better", "n-samples".
Json to_json(const ZeroShotResult& result);

// Returns one line per subset, and a line for all.
std::string to_text(const ZeroShotResult& result);

}  // namespace headroom::zero_shot
