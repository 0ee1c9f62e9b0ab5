// A task defines the training objective, the data and the evaluation of a model. The trainer, checkpoints, reports and
// comparisons use only this interface; task.cc selects the task for a config.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/tokens/batches.h"
#include "figures.h"
#include "headroom/config/config.h"
#include "headroom/core/process_group.h"
#include "headroom/models/model.h"
#include "headroom/tokenizers/tokenizer.h"

namespace headroom::tasks {

struct Evaluation {
  Sums sums;
  double seconds = 0.0;
  bool complete = true;  // false: interrupted by Ctrl-C; the sums cover the predictions made so far

  std::int64_t predictions() const { return sum_of(sums, kCrossEntropy).count; }
};

struct EvaluateOptions {
  std::int64_t batch_size = 16;   // affects only speed; on other devices, and except in language models, also rounding
  std::int64_t batch_tokens = 0;  // translation: maximum tokens per side, with padding; 0: no limit; affects only speed
  // Evaluate at most this many predictions, but at least one unit (chunk, row, example or pair), spread evenly over the
  // data (data/tokens/example_order.h); 0: all. Must be 0 if `stride` is set.
  std::int64_t most_tokens = 0;
  // Language modelling without memory: sliding windows of context_length tokens that advance by `stride` tokens; all
  // but the first count only their last `stride` predictions. 0: chunks without overlap.
  std::int64_t stride = 0;
  nn::Context context;
  bool show_progress = false;
  // The ranks that evaluate together; all pass the same arguments. The sums are bit-identical for any number of ranks.
  ProcessGroup* group = &alone();
};

// An endless stream of batches that can be resumed exactly from a saved position.
class TrainingData {
 public:
  virtual ~TrainingData() = default;
  virtual models::Batch next() = 0;  // on the CPU
  virtual data::DataPosition position() const { return order_->position(); }
  virtual void seek(data::DataPosition position) { order_->seek(position); }  // throws UserError if out of range
  // A description that identifies this data, such as "sentencepiece-8000-1f3a9c02, 1234567 tokens, 9c41...".
  const std::string& identity() const { return identity_; }
  // Marks the rows of each batch that this rank uses. From the next batch on, the other rows may be left as zeros to
  // save work.
  virtual void need_only(const std::vector<bool>& /*rows*/) {}

 protected:
  // Called by the constructor. `order`, a member, holds the position; null: position() and seek() are overridden.
  void set(std::string identity, data::EpochStream* order) {
    identity_ = std::move(identity);
    order_ = order;
  }

 private:
  std::string identity_;
  data::EpochStream* order_ = nullptr;
};

class EvaluationData {
 public:
  virtual ~EvaluationData() = default;
  // Throws UserError if the data does not fit the model.
  virtual Evaluation evaluate(const models::Model& model, const EvaluateOptions& options) const = 0;
  // Returns the approximate cost of evaluating at most `most_tokens` predictions (0: all), as the number of
  // training-batch rows (sequences, examples, pairs) whose forward passes take equally long.
  virtual double rows(const config::Config& config, std::int64_t most_tokens) const = 0;
  // A description that identifies this data by its content.
  virtual std::string identity() const = 0;
  // Returns a default prompt for sample texts; empty if models of this task do not generate text.
  virtual std::string sample_prompt() const { return {}; }
};

struct TaskData {
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer;  // null if the task reads no text
  std::unique_ptr<TrainingData> training;
  std::unique_ptr<EvaluationData> validation;
  std::string special_tokens = {};  // inherited from the checkpoint that a run starts from (store::kSpecialTokens)
};

// Data to evaluate a trained model on.
struct EvaluationRequest {
  const config::Config& config;
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer;  // the model's tokenizer
  std::vector<std::string> files;                          // empty: the config's validation data
  std::filesystem::path cache = {};                        // for temporary files; empty: the user's cache
};

class Task {
 public:
  struct Parts {
    std::string_view name;
    std::string_view protocol;        // one or two sentences on how the figures are measured
    std::vector<FigureKind> figures;  // the first figure is the training loss; exactly one figure is the headline
    Figures (*figures_of)(const Sums& sums);
    TaskData (*open)(const config::Config& config, const std::filesystem::path& cache);
    std::unique_ptr<EvaluationData> (*open_evaluation)(const EvaluationRequest& request);
  };
  explicit Task(Parts parts) : parts_(std::move(parts)) {}

  std::string_view name() const { return parts_.name; }
  std::string_view protocol() const { return parts_.protocol; }
  const std::vector<FigureKind>& figures() const { return parts_.figures; }
  // Derives the figures from the sums of an evaluation. NaN if nothing was counted.
  Figures figures_of(const Sums& sums) const { return parts_.figures_of(sums); }
  // Opens the config's data. Tokenizers and token files are prepared first and stored in `cache`. Throws UserError if
  // the data is unusable.
  TaskData open(const config::Config& config, const std::filesystem::path& cache) const {
    return parts_.open(config, cache);
  }
  std::unique_ptr<EvaluationData> open_evaluation(const EvaluationRequest& request) const {
    return parts_.open_evaluation(request);
  }

 private:
  Parts parts_;
};

// Returns the task for the config's model and data. Throws UserError if there is none; the message starts with `what`,
// such as "train".
const Task& task_for(const config::Config& config, std::string_view what);

}  // namespace headroom::tasks
