#include "joint_fit.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstdint>

#include "headroom/models/language_model.h"
#include "training/train/step/prediction_cache.h"

namespace headroom::convert {
namespace {

constexpr std::int64_t kTop = 64;              // likeliest tokens of a prediction
constexpr std::int64_t kMostLogits = 1 << 24;  // of a pass: limits the memory for large vocabularies

// Batches with the source's predictions, in parts of few enough logits for one pass. Predictions are computed when a
// batch is first read, and stored.
class TaughtBatches {
 public:
  TaughtBatches(const models::Model& source, const std::vector<models::Batch>& batches)
      : source_(source), batches_(batches), parts_(batches.size()) {}

  std::size_t size() const { return batches_.size(); }

  const std::vector<models::Batch>& at(std::size_t i) {
    if (parts_[i].empty()) {
      const models::Batch& batch = batches_[i];
      const config::ModelOptions& o = source_.options();
      const std::int64_t rows = std::max<std::int64_t>(1, kMostLogits / (o.context_length * o.vocabulary_size));
      for (std::int64_t first = 0; first < batch.rows(); first += rows) {
        parts_[i].push_back(taught(batch.narrow(first, std::min(rows, batch.rows() - first))));
      }
    }
    return parts_[i];
  }

 private:
  models::Batch taught(models::Batch batch) const {
    const at::NoGradGuard guard;
    const at::Tensor& all = batch.at("tokens");
    const at::Tensor tokens = batch.find("targets").defined() ? all : all.slice(1, 0, -1);
    models::Memory memory;
    const at::Tensor logits = models::as_language_model(source_, "convert").logits(tokens, memory, {});
    const std::int64_t k = std::min(kTop, source_.options().vocabulary_size - 1);
    const train::TopPredictions top = train::top_predictions(logits, k, 1.0);
    batch.distillation = {.weight = 1.0, .temperature = 1.0};
    batch.tensors["teacher"] = top.log_probability;
    batch.tensors["teacher_index"] = top.index;
    return batch;
  }

  const models::Model& source_;
  const std::vector<models::Batch>& batches_;
  std::vector<std::vector<models::Batch>> parts_;
};

// The divergence of a part, as its contribution to the mean over the whole batch.
at::Tensor divergence_of(const models::Model& model, const models::Batch& part, std::int64_t all_targets) {
  models::Memory memory;
  const double share = static_cast<double>(part.n_targets()) / static_cast<double>(all_targets);
  return model.loss(part, memory, {}).divergence * share;
}

std::int64_t targets_of(const std::vector<models::Batch>& parts) {
  std::int64_t sum = 0;
  for (const models::Batch& part : parts) {
    sum += part.n_targets();
  }
  return sum;
}

double mean_divergence(const models::Model& model, TaughtBatches& batches) {
  const at::NoGradGuard guard;
  double sum = 0.0, targets = 0.0;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    for (const models::Batch& part : batches.at(i)) {
      sum += divergence_of(model, part, 1).item<double>();
      targets += static_cast<double>(part.n_targets());
    }
  }
  return sum / targets;
}

}  // namespace

bool has_joint_fit(const config::ModelOptions& model) {
  return model.kind == config::ModelKind::language_model && model.memory_length == 0;
}

Divergences fit_together(const models::Model& source, const models::Model& model,
                         const std::vector<at::Tensor>& parameters, const Batches& batches, const FitOptions& options) {
  for (nn::Parameter other : model.parameters().all()) {
    other.tensor.requires_grad_(false);
  }
  for (const at::Tensor& parameter : parameters) {
    parameter.requires_grad_(true);
  }
  TaughtBatches fit(source, batches.fit), held_out(source, batches.held_out);
  Divergences divergences{.start = mean_divergence(model, held_out)};
  const SavedValues start(parameters);
  const at::Generator random = at::make_generator<at::CPUGeneratorImpl>(options.seed);
  const auto n = static_cast<std::int64_t>(fit.size());
  descend(parameters, options, [&] {
    const auto chosen = static_cast<std::size_t>(at::randint(n, {1}, random, at::kLong).item<std::int64_t>());
    const std::vector<models::Batch>& parts = fit.at(chosen);
    const std::int64_t targets = targets_of(parts);
    for (const models::Batch& part : parts) {
      divergence_of(model, part, targets).backward();
    }
  });
  divergences.fitted = mean_divergence(model, held_out);
  if (!(divergences.fitted < divergences.start)) {
    divergences.fitted = divergences.start;
    start.restore();
  }
  return divergences;
}

}  // namespace headroom::convert
