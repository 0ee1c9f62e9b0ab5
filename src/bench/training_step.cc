#include "training_step.h"

#include <algorithm>

#include "headroom/ops/adamw.h"

namespace headroom::bench {

TrainingStep::TrainingStep(const config::ModelOptions& options, std::int64_t batch, const std::string& precision)
    : model_(options, 1),
      tokens_(at::randint(options.vocabulary_size, {batch, options.context_length + 1}, at::kLong)) {
  context_.training = true;
  context_.random = {.seed = 1};
  if (precision == "bf16") {
    context_.compute_dtype = at::kBFloat16;
  }
  for (const nn::Parameter& p : model_.parameters().all()) {
    parameters_.push_back(p.tensor);
    m_.push_back(at::zeros_like(p.tensor));
    v_.push_back(at::zeros_like(p.tensor));
  }
}

void TrainingStep::operator()() {
  model_.loss(tokens_, memory_, context_).total().backward();
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& p : parameters_) {
    gradients.push_back(p.grad().defined() ? p.grad() : at::zeros_like(p.detach()));
  }
  const double norm = ops::global_norm(gradients);
  const at::NoGradGuard no_grad;
  ops::adamw_step(parameters_, gradients, m_, v_, ++step_, {.learning_rate = 1e-4}, std::min(1.0, 0.25 / norm));
  model_.parameters().zero_grad();
}

}  // namespace headroom::bench
