// What the tasks of choosing a class share: examples in batches, and how well a model does on them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/tokens/example_order.h"
#include "training/tasks/task.h"

namespace headroom::tasks {

// Of a batch to train on.
struct TrainingRows {
  std::span<const std::int64_t> examples;
  std::uint64_t seed = 0;    // of what is drawn for this batch
  std::vector<bool> needed;  // a row each: whether it must be filled in; empty: all
};

class ClassExamples {
 public:
  virtual ~ClassExamples() = default;
  virtual std::int64_t size() const = 0;
  // In words, as TrainingData::identity().
  virtual std::string identity() const = 0;
  // Of an example, in tokens; all the same: 0.
  virtual std::int64_t length(std::int64_t i) const = 0;
  // What the model reads, and "label".
  virtual models::Batch batch(std::span<const std::int64_t> examples) const = 0;
  // The same, changed at random by whatever is to make a small set larger.
  virtual models::Batch training_batch(const TrainingRows& rows) const { return batch(rows.examples); }
  // Where they lie in files and training is to read a few of these at a time (data/example_order.h).
  virtual data::FileShuffle file_shuffle() const { return {}; }
};

// The figures of choosing a class, with the one that models are compared by.
enum class JudgedBy { accuracy, loss };
std::vector<FigureKind> class_figures(JudgedBy judged_by);
// How often the right class is among the five likeliest: in the figures of a ClassTask where it was summed up.
FigureKind top_five_kind();

// A task of choosing a class: its figures.
class ClassTask : public Task {
 public:
  const std::vector<FigureKind>& figures() const override;
  Figures figures_of(const Sums& sums) const override;
};

std::unique_ptr<TrainingData> train_on(std::shared_ptr<const ClassExamples> examples, const config::Config& config);
// With `top_five`, how often the right class is among the five likeliest is summed up as well, of more than five.
std::unique_ptr<EvaluationData> evaluate_on(std::shared_ptr<const ClassExamples> examples, bool top_five = false);

// "label" [B] and the bookkeeping of a batch whose rows hold `tokens` positions each.
models::Batch labelled_batch(const std::vector<std::int32_t>& labels, std::span<const std::int64_t> examples,
                             std::int64_t tokens);

}  // namespace headroom::tasks
