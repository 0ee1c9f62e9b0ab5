// Tests without training, scored from a language model's log-probabilities: LAMBADA, BLiMP, the Children's Book Test,
// multiple choice, puzzles, and targets that follow their inputs.
//
// The measures: LAMBADA's last word must be what greedy decoding writes. BLiMP: the sum of a sentence's
// log-probabilities, which must be higher for the grammatical one. CBT: the log-probability a token of the answer and
// the rest of its sentence, which must be above that of every other candidate. Multiple choice: the highest sum of an
// answer's log-probabilities ("acc"), and the highest sum a character ("acc_norm"), as in lm-evaluation-harness.
// Puzzles ("composition"): each answer must be what greedy decoding writes. "target_loss": the perplexity of the
// targets' tokens alone, each given its input and the target so far. A tie counts as wrong.
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

namespace headroom::tasks {

struct ZeroShotRequest {
  std::string task;            // one of zero_shot_tasks()
  std::filesystem::path data;  // a file, a folder or a tar archive
  config::DataOptions run;     // "composition", where `data` is empty: the validation rows that such a run generates
  std::int64_t shots = 0;      // solved examples in front of each question
  // A file, folder or archive that they are drawn from; empty: the other questions of `data`, which is said.
  std::filesystem::path shots_from;
  Prefix beginning;
  bool items = false;     // whether the result has them
  bool by_shots = false;  // "composition": whether the result has by_shots
  EvaluateOptions options;
};

// Counts over questions, each right or wrong.
struct Tally {
  std::int64_t questions = 0, right = 0, right_normalised = 0;
  double log_probability = 0.0;  // of the right answers
  std::int64_t tokens = 0;       // of the right answers
  double accuracy() const { return static_cast<double>(right) / static_cast<double>(questions); }
  Tally& operator+=(const Tally& other);
  double accuracy_normalised() const { return static_cast<double>(right_normalised) / static_cast<double>(questions); }
};

struct ZeroShotResult {
  std::string task;
  std::int64_t shots = 0;
  std::string shots_from;  // where they were drawn from
  PrefixKind begin = PrefixKind::line_end;
  bool normalised = false, perplexity = false;  // whether the task has these figures
  bool of_tokens = false;                       // perplexity: of a token; false: of a whole answer
  bool mean_of_subsets = true;                  // what accuracy() is; false: all questions count alike
  std::map<std::string, Tally> subsets;         // by name; one without a name where there are no subsets
  std::map<std::size_t, Tally> by_shots;        // composition: by the solved examples that precede an answer
  // A question each (composition: an answer): "question" (file:line), "subset", "right", "gold", and "choices" with
  // "context", "continuation", "log_probability" (nats), "tokens", "greedy". Composition: "log_probability", "tokens".
  std::vector<Json> items;
  std::int64_t truncated = 0, texts = 0, tokens = 0;
  double seconds = 0.0;
  bool complete = true;  // false: Ctrl-C, and there are no figures

  Tally whole() const;
  double accuracy() const;
  double accuracy_error() const;  // its standard error
};

std::vector<std::string> zero_shot_tasks();

// Throws UserError, with the nearest name, where there is no test of this name.
void check_zero_shot_task(const std::string& name);

// Throws UserError for an unknown task (naming the nearest), unreadable data (naming file and line), data whose
// fields say that they are another task's, shots that the task has no use for or the data too few rows for.
ZeroShotResult evaluate_zero_shot(const models::LanguageModel& model, const tokenizers::Tokenizer& tokenizer,
                                  const ZeroShotRequest& request);

// "task", "accuracy", "subsets" (name -> accuracy), ..., and also what lm-evaluation-harness writes: "results",
// "groups", "group_subtasks", "configs", "versions", "n-shot", "higher_is_better", "n-samples".
Json to_json(const ZeroShotResult& result);

// A line a subset, then the whole.
std::string to_text(const ZeroShotResult& result);

}  // namespace headroom::tasks
