#include "training_step.h"

#include "headroom/models/compute.h"

namespace headroom::bench {

nn::Context context_for(const std::string& precision, at::Device device) {
  config::TrainOptions options;
  options.precision = precision == "bf16" ? config::Precision::bf16 : config::Precision::fp32;
  return models::make_context(options, device);
}

namespace {

config::TrainOptions options_of(const StepShape& shape) {
  config::TrainOptions options;
  options.learning_rate = 1e-4;
  options.schedule = config::Schedule::constant;
  options.accumulate = shape.accumulate;
  return options;
}

}  // namespace

TrainingStep::TrainingStep(const config::ModelOptions& options, const StepShape& shape)
    : model_(models::make_model(options, 1, at::TensorOptions(shape.device).dtype(at::kFloat))),
      batch_(model_->example(shape.batch, 1)),
      context_(context_for(shape.precision, shape.device)),
      options_(options_of(shape)),
      sharding_(model_->parameters(), parallel::default_group().size(), options_.optimizer),
      state_(train::initial_state(model_->parameters(), options_.optimizer,
                                  train::OwnedShards(sharding_, parallel::default_group().rank()))),
      reducer_(train::make_gradient_reducer(*model_, options_, parallel::default_group(), sharding_)) {}

void TrainingStep::operator()() {
  train::train_step(*model_, batch_, state_, options_, context_, *reducer_);
}

}  // namespace headroom::bench
