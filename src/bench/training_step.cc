#include "training_step.h"

#include "headroom/train/compute.h"

namespace headroom::bench {

nn::Context context_for(const std::string& precision) {
  config::TrainOptions options;
  options.precision = precision == "bf16" ? config::Precision::bf16 : config::Precision::fp32;
  return train::make_context(options, at::kCPU);
}

TrainingStep::TrainingStep(const config::ModelOptions& options, std::int64_t batch, const std::string& precision)
    : model_(models::make_model(options, 1)),
      batch_(model_->example(batch, 1)),
      context_(context_for(precision)),
      state_(train::fresh_state(model_->parameters())) {
  options_.learning_rate = 1e-4;
  options_.schedule = config::Schedule::constant;
}

void TrainingStep::operator()() {
  train::train_step(*model_, batch_, state_, options_, context_);
}

}  // namespace headroom::bench
