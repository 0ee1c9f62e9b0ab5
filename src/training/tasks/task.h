// What a model is trained for: where its batches come from, and how well it does. Trainer, checkpoints, reports and
// comparisons know tasks by this interface alone; what a model is trained for is decided in task.cc.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokens/batches.h"
#include "figures.h"
#include "headroom/config/config.h"
#include "headroom/core/process_group.h"
#include "headroom/models/model.h"
#include "headroom/tokenizers/tokenizer.h"
#include "sums.h"

namespace headroom::tasks {

struct Evaluation {
  Sums sums;
  double seconds = 0.0;
  bool complete = true;  // false: Ctrl-C (core/system.h) ended it early, and it covers the predictions until then

  std::int64_t predictions() const { return sum_of(sums, kCrossEntropy).count; }
};

struct EvaluateOptions {
  std::int64_t batch_size = 16;   // for speed: results do not depend on it, apart from rounding
  std::int64_t batch_tokens = 0;  // translation, also for speed: of a side at most, padding included; 0: any
  std::int64_t most_tokens = 0;   // so many predictions from the beginning of the data; 0: all
  // Language modelling without memory: windows of context_length tokens that begin so many tokens apart, of which all
  // but the first count their last `stride` predictions only. 0: chunks that do not overlap.
  std::int64_t stride = 0;
  nn::Context context;
  bool show_progress = false;
  ProcessGroup* peers =
      &alone();  // they all evaluate the same, and share its batches out: sums are the same to the bit
};

// Batches without end, in an order that a saved position continues exactly.
class TrainingData {
 public:
  virtual ~TrainingData() = default;
  virtual models::Batch next() = 0;  // on the CPU
  virtual data::DataPosition position() const = 0;
  virtual void seek(data::DataPosition position) = 0;  // throws UserError when out of range
  // Identifies this data, in words: "sentencepiece-8000-1f3a9c02, 1234567 tokens, 9c41...".
  virtual const std::string& identity() const = 0;
  // Which rows of a batch this process reads; where they are costly, the others of the batches from now on may be left
  // as zeros.
  virtual void need_only(const std::vector<bool>& /*rows*/) {}
};

class EvaluationData {
 public:
  virtual ~EvaluationData() = default;
  // What the model's predictions of this data add up to. Throws UserError when the data does not fit the model.
  virtual Evaluation evaluate(const models::Model& model, const EvaluateOptions& options) const = 0;
  // About so many rows of a training batch (sequences, examples, pairs) take as long to read without gradients as a
  // validation of such a run does.
  virtual double rows(const config::Config& config) const = 0;
  // Identifies this data by its content, in words; text by the tokens that are predicted.
  virtual std::string identity() const = 0;
  // A beginning that a model of this task may continue, for samples; empty where models do not write text.
  virtual std::string beginning() const { return {}; }
};

struct TaskData {
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer;  // null: the task reads no text
  std::unique_ptr<TrainingData> training;
  std::unique_ptr<EvaluationData> validation;
};

// Data to evaluate a trained model on.
struct EvaluationRequest {
  const config::Config& config;
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer;  // the model's own
  std::vector<std::string> files;                          // none: the config's validation data
  std::filesystem::path cache = {};                        // for the while; none: the user's
};

class Task {
 public:
  virtual ~Task() = default;
  virtual std::string_view name() const = 0;
  // The first is what training minimises; one of them is the headline.
  virtual const std::vector<FigureKind>& figures() const = 0;
  // How they are measured, a sentence or two.
  virtual std::string_view protocol() const = 0;
  // The figures of an evaluation's sums, of the whole data or added over its parts; NaN where nothing was counted.
  virtual Figures figures_of(const Sums& sums) const = 0;
  // Opens what the config names, after preparing what it needs (tokenizers, token files), which is kept in
  // `cache`. Throws UserError for unusable data.
  virtual TaskData open(const config::Config& config, const std::filesystem::path& cache) const = 0;
  virtual std::unique_ptr<EvaluationData> open_evaluation(const EvaluationRequest& request) const = 0;
};

// The task that a model of this kind is trained for on such data. Throws UserError, beginning with `what` ("train"),
// where there is none.
const Task& task_for(const config::Config& config, std::string_view what);

}  // namespace headroom::tasks
