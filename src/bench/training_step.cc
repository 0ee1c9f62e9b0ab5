#include "training_step.h"

#include "headroom/models/compute.h"

namespace headroom::bench {

nn::Context context_for(const std::string& precision, at::Device device) {
  config::TrainOptions options;
  options.precision = precision == "bf16" ? config::Precision::bf16 : config::Precision::fp32;
  return models::make_context(options, device);
}

TrainingStep::TrainingStep(const config::ModelOptions& options, std::int64_t batch, const std::string& precision,
                           at::Device device)
    : model_(models::make_model(options, 1, at::TensorOptions(device).dtype(at::kFloat))),
      batch_(model_->example(batch, 1)),
      context_(context_for(precision, device)),
      state_(train::fresh_state(model_->parameters())) {
  options_.learning_rate = 1e-4;
  options_.schedule = config::Schedule::constant;
}

void TrainingStep::operator()() {
  train::train_step(*model_, batch_, state_, options_, context_);
}

}  // namespace headroom::bench
