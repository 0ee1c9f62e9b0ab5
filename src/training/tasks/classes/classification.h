// Classification of sequences and images: the tasks, and what they share.
//
// Figures: "loss" in nats an example; "accuracy", the fraction of examples whose likeliest class is the right one; for
// images of more than five classes also "accuracy_top5", whose right class is among the five likeliest.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/text/labelled_text.h"
#include "data/tokens/example_order.h"
#include "training/tasks/task.h"

namespace headroom::tasks {

// model.kind "classifier". With data.generator: ListOps, generated or from files (data/synthetic/listops.h); its models
// are compared by the loss. Otherwise: bytes of labelled texts (data/text/labelled_text.h). Rows of a batch are padded
// at the end to the longest one with model.padding_token, which must be 0.
const Task& sequence_classification();
const Task& listops();

// Whether the examples are ListOps expressions.
bool is_listops(const config::DataOptions& data);
// The tokenizer of a classifier's texts, which its checkpoint does not contain: ListOps symbols, or bytes. That of
// ListOps throws UserError in encode() for anything except one expression.
std::shared_ptr<const tokenizers::Tokenizer> sequence_tokenizer(const config::Config& config);
// The examples of open_evaluation() of these tasks.
data::LabelledSequences evaluation_sequences(const EvaluationRequest& request);

// model.kind "vision": images in tar shards, folders, idx and CIFAR files (data/images/image_dataset.h). Training
// batches are read, decoded, augmented and mixed while the step before them is computed. They depend only on train.seed
// and the position, not on the number of threads or ranks.
const Task& image_classification();

// A training batch to prepare.
struct TrainingRows {
  std::span<const std::int64_t> examples;
  std::uint64_t seed = 0;    // of the batch's random changes
  std::vector<bool> needed;  // for each row, whether it must be filled in; empty: all
};

class ClassExamples {
 public:
  virtual ~ClassExamples() = default;
  virtual std::int64_t size() const = 0;
  virtual std::string identity() const = 0;  // as TrainingData::identity()
  // The length of an example in tokens; 0 if all have the same.
  virtual std::int64_t length(std::int64_t i) const = 0;
  // The model's inputs, and "label".
  virtual models::Batch batch(std::span<const std::int64_t> examples) const = 0;
  // The same with augmentation.
  virtual models::Batch training_batch(const TrainingRows& rows) const { return batch(rows.examples); }
  // Consecutive examples in files, if training reads them in runs (data/tokens/example_order.h).
  virtual data::FileShuffle file_shuffle() const { return {}; }
};

// The figures of a classification task; `judged_by` is the headline.
enum class JudgedBy { accuracy, loss };
std::vector<FigureKind> class_figures(JudgedBy judged_by);
// "accuracy_top5", in the figures of a ClassTask if the evaluation counted it.
FigureKind top_five_kind();

class ClassTask : public Task {
 public:
  const std::vector<FigureKind>& figures() const override;
  Figures figures_of(const Sums& sums) const override;
};

std::unique_ptr<TrainingData> train_on(std::shared_ptr<const ClassExamples> examples, const config::Config& config);
// `top_five`: also count right classes among the five likeliest, if there are more than five.
std::unique_ptr<EvaluationData> evaluate_on(std::shared_ptr<const ClassExamples> examples, bool top_five = false);

// A batch with "label" [B], whose rows have `tokens` positions each.
models::Batch labelled_batch(const std::vector<std::int32_t>& labels, std::span<const std::int64_t> examples,
                             std::int64_t tokens);

}  // namespace headroom::tasks
