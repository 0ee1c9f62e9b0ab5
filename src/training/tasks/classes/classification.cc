#include "classification.h"

#include <algorithm>

#include "data/tokens/example_order.h"
#include "foundation/core/random.h"
#include "headroom/core/error.h"
#include "headroom/models/classifier.h"
#include "training/tasks/evaluation_loop.h"

namespace headroom::tasks {
namespace {

class ClassTraining : public TrainingData {
 public:
  ClassTraining(std::shared_ptr<const ClassExamples> examples, const config::Config& config)
      : examples_(std::move(examples)),
        identity_(examples_->identity()),
        smoothing_(config.train.label_smoothing),
        seed_(mix(static_cast<std::uint64_t>(config.train.seed), "examples")),
        order_({.examples = examples_->size(),
                .batch = config.train.batch_size,
                .seed = seed_,
                .length = [set = examples_.get()](std::int64_t i) { return set->length(i); }},
               identity_) {}

  models::Batch next() override {
    const data::DataPosition place = order_.position();
    const std::uint64_t seed =
        mix(mix(seed_, static_cast<std::uint64_t>(place.epoch)), static_cast<std::uint64_t>(place.step));
    const std::vector<std::int64_t> examples = order_.next();
    models::Batch batch = examples_->training_batch({.examples = examples, .seed = seed, .needed = needed_});
    batch.label_smoothing = smoothing_;
    return batch;
  }
  data::DataPosition position() const override { return order_.position(); }
  void seek(data::DataPosition position) override { order_.seek(position); }
  const std::string& identity() const override { return identity_; }
  void need_only(const std::vector<bool>& rows) override { needed_ = rows; }

 private:
  std::shared_ptr<const ClassExamples> examples_;
  std::string identity_;
  std::vector<bool> needed_;
  double smoothing_;
  std::uint64_t seed_;
  data::ExampleOrder order_;
};

constexpr const char* kRightClasses = "right";
constexpr const char* kRightInFive = "right_in_five";
constexpr std::int64_t kFive = 5;

Sums score(const models::ClassModel& model, const models::Batch& batch, const nn::Context& context, bool top_five) {
  if (batch.rows() == 0) {
    return {};
  }
  const at::Tensor logits = model.class_logits(batch, context);
  const at::Tensor wide = logits.scalar_type() == at::kDouble ? logits : logits.to(at::kFloat);
  const at::Tensor& label = batch.at("label");
  Sums sums = sums_of_losses(at::cross_entropy_loss(wide, label, {}, at::Reduction::None));
  const auto right = static_cast<double>(wide.argmax(1).eq(label).sum().item<std::int64_t>());
  sums[kRightClasses] = {.sum = right, .count = batch.rows()};
  if (top_five && wide.size(1) > kFive) {
    const at::Tensor likeliest = std::get<1>(wide.topk(kFive, 1));
    const auto among = static_cast<double>(likeliest.eq(label.unsqueeze(1)).sum().item<std::int64_t>());
    sums[kRightInFive] = {.sum = among, .count = batch.rows()};
  }
  return sums;
}

class ClassEvaluation : public EvaluationData {
 public:
  ClassEvaluation(std::shared_ptr<const ClassExamples> examples, bool top_five)
      : examples_(std::move(examples)), top_five_(top_five) {}

  Evaluation evaluate(const models::Model& model, const EvaluateOptions& options) const override {
    const auto* classifier = dynamic_cast<const models::ClassModel*>(&model);
    if (classifier == nullptr) {
      fail("classification: the model is not a classifier");
    }
    const std::vector<std::int64_t> order = by_length(options.most_tokens);
    const auto measure = [&](std::int64_t begin, std::int64_t end, const nn::Context& context) {
      const models::Batch batch = examples_->batch(units_of(order, begin, end));
      return score(*classifier, batch.to(model.device()), context, top_five_);
    };
    Evaluation result = run_evaluation(
        options, {.unit = "example", .units = std::ssize(order), .evaluate = measure, .shows_loss = false});
    if (result.predictions() == 0) {
      user_error("{}: none of its {} examples can be read", examples_->identity(), order.size());
    }
    return result;
  }
  double rows(const config::Config& /*config*/, std::int64_t most_tokens) const override {
    return static_cast<double>(part(most_tokens).size());
  }
  std::string identity() const override { return examples_->identity(); }

 private:
  std::vector<std::int64_t> part(std::int64_t most) const {
    return data::spread_units(examples_->size(), most, [](std::int64_t) { return 1; });
  }

  // Returns the examples that are read, sorted by length to reduce padding.
  std::vector<std::int64_t> by_length(std::int64_t most) const {
    std::vector<std::int64_t> order = part(most);
    std::ranges::stable_sort(
        order, [this](std::int64_t a, std::int64_t b) { return examples_->length(a) < examples_->length(b); });
    return order;
  }

  std::shared_ptr<const ClassExamples> examples_;
  bool top_five_;
};

}  // namespace

FigureKind top_five_kind() {
  return {.name = "accuracy_top5",
          .metric = "validation_accuracy_top5",
          .words = "top-5 accuracy",
          .unit = "",
          .better = Better::higher,
          .shown = Shown::table,
          .decimals = 4,
          .range = 1.0,
          .always = false};
}

std::vector<FigureKind> class_figures(JudgedBy judged_by) {
  const bool loss = judged_by == JudgedBy::loss;
  return {{.name = "loss",
           .metric = "validation_loss",
           .words = "loss",
           .unit = "nats per example",
           .shown = loss ? Shown::headline : Shown::files,
           .decimals = 4},
          loss_error_kind(),
          accuracy_kind(loss ? Shown::table : Shown::headline)};
}

Figures ClassTask::figures_of(const Sums& sums) const {
  Figures figures = {{"loss", mean(sums, kCrossEntropy)}, {"accuracy", mean(sums, kRightClasses)}};
  if (const Sum among = sum_of(sums, kRightInFive); among.count > 0) {
    figures[top_five_kind().name] = among.sum / static_cast<double>(among.count);
  }
  add_loss_error(sums, figures);
  return figures;
}

std::unique_ptr<TrainingData> train_on(std::shared_ptr<const ClassExamples> examples, const config::Config& config) {
  return std::make_unique<ClassTraining>(std::move(examples), config);
}

std::unique_ptr<EvaluationData> evaluate_on(std::shared_ptr<const ClassExamples> examples, bool top_five) {
  return std::make_unique<ClassEvaluation>(std::move(examples), top_five);
}

models::Batch labelled_batch(const std::vector<std::int32_t>& labels, std::span<const std::int64_t> examples,
                             std::int64_t tokens) {
  const std::int64_t rows = std::ssize(examples);
  const at::Tensor label = at::empty({rows}, at::kLong);
  std::ranges::transform(examples, label.data_ptr<std::int64_t>(),
                         [&](std::int64_t i) { return labels[static_cast<std::size_t>(i)]; });
  models::Batch batch;
  batch.tensors["label"] = label;
  batch.targets.assign(examples.size(), 1);
  batch.tokens = rows * tokens;
  batch.resets_memory = true;
  return batch;
}

}  // namespace headroom::tasks
