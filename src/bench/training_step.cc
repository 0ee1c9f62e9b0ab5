#include "training_step.h"

namespace headroom::bench {

TrainingStep::TrainingStep(const config::ModelOptions& options, std::int64_t batch, const std::string& precision)
    : model_(models::make_model(options, 1)),
      batch_(model_->example(batch, 1)),
      state_(train::fresh_state(model_->parameters())) {
  if (precision == "bf16") {
    context_.compute_dtype = at::kBFloat16;
  }
  options_.learning_rate = 1e-4;
  options_.schedule = config::Schedule::constant;
}

void TrainingStep::operator()() {
  train::train_step(*model_, batch_, state_, options_, context_);
}

}  // namespace headroom::bench
