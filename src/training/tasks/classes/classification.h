// Classification tasks for sequences and images, and their shared code.
//
// Figures: "loss", in nats per example; "accuracy", the fraction of examples whose most likely class is correct; for
// images with more than five classes also "accuracy_top5", the fraction whose correct class is among the five most
// likely.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/text/labelled_text.h"
#include "data/tokens/example_order.h"
#include "headroom/models/model.h"
#include "training/tasks/task.h"

namespace headroom::tasks {

// model.kind "classifier". With data.generator: ListOps, generated or read from files (data/synthetic/listops.h);
// models are compared by the loss. Otherwise: the bytes of labelled texts (data/text/labelled_text.h). Rows of a batch
// are padded at the end with model.padding_token, which must be 0, to the length of the longest row.
const Task& sequence_classification();
const Task& listops();

// Returns whether the examples are ListOps expressions.
bool is_listops(const config::DataOptions& data);
// Returns the tokenizer of a classifier, which is not stored in its checkpoint: ListOps symbols, or bytes. encode() of
// the ListOps tokenizer throws UserError for anything but a single expression.
std::shared_ptr<const tokenizers::Tokenizer> sequence_tokenizer(const config::Config& config);
// Returns the examples that open_evaluation() of these tasks uses.
data::LabelledSequences evaluation_sequences(const EvaluationRequest& request);

// model.kind "vision": images in folders, idx and CIFAR files (data/images/image_dataset.h). Training
// batches are read, decoded, augmented and mixed while the previous step is computed. They depend only on train.seed
// and the position, not on the number of threads or ranks.
const Task& image_classification();

// A training batch to prepare.
struct TrainingRows {
  std::span<const std::int64_t> examples;
  std::uint64_t seed = 0;    // for augmentation and mixup of the batch
  std::vector<bool> needed;  // by row: whether it must be filled in; empty: all rows
};

class ClassExamples {
 public:
  virtual ~ClassExamples() = default;
  virtual std::int64_t size() const = 0;
  virtual std::string identity() const = 0;  // as TrainingData::identity()
  // Length of an example in tokens; 0 if all examples have the same length.
  virtual std::int64_t length(std::int64_t i) const = 0;
  // Returns the model inputs and "label".
  virtual models::Batch batch(std::span<const std::int64_t> examples) const = 0;
  // Returns batch() with augmentation.
  virtual models::Batch training_batch(const TrainingRows& rows) const { return batch(rows.examples); }
};

// Returns the figures of a classification task. The accuracy is the headline, unless `loss` is Shown::headline.
std::vector<FigureKind> class_figures(Shown loss = Shown::files);
Figures class_figures_of(const Sums& sums);

std::unique_ptr<TrainingData> train_on(std::shared_ptr<const ClassExamples> examples, const config::Config& config);
// `top_five`: also counts examples whose correct class is among the five most likely, if there are more than five
// classes.
std::unique_ptr<EvaluationData> evaluate_on(std::shared_ptr<const ClassExamples> examples, bool top_five = false);

// Returns a batch with "label" [B] and `tokens` positions per row.
models::Batch labelled_batch(const std::vector<std::int32_t>& labels, std::span<const std::int64_t> examples,
                             std::int64_t tokens);

// mixup (Zhang et al. 2018): mixes examples and their labels in pairs.

// Returns max(lambda, 1 - lambda) for lambda ~ Beta(alpha, alpha). Mixing is symmetric, so each row keeps the larger
// weight.
double mixup_lambda(double alpha, std::uint64_t seed);

// Mixes every image of "images" with the one before it: row b becomes lambda * row[b] + (1 - lambda) * row[b - 1]; the
// first row is mixed with the last. Adds "other_label" and "label_share" [B], lambda (models/classifier.h).
void mix_rows(models::Batch& batch, double lambda, std::size_t threads);

}  // namespace headroom::tasks
