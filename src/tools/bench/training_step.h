// The trainer's step without its files, on a batch drawn once.
#pragma once

#include <memory>
#include <string>

#include "training/train/ranks/gradient_reducer.h"
#include "training/train/step/step.h"

namespace headroom::bench {

// What a run with these products, "fp32" or "bf16", computes in.
nn::Context context_for(const std::string& precision, at::Device device);

struct StepShape {
  std::int64_t batch = 1;       // sequences, of all processes
  std::int64_t accumulate = 1;  // micro-batches
  std::string precision = "fp32";
  at::Device device = at::kCPU;
};

// Shared with the other processes, where parallel::default_group() has some.
class TrainingStep {
 public:
  TrainingStep(const config::ModelOptions& options, const StepShape& shape);
  void operator()();

 private:
  std::unique_ptr<models::Model> model_;
  models::Batch batch_;
  nn::Context context_;
  config::TrainOptions options_;
  train::Sharding sharding_;
  train::TrainState state_;
  std::unique_ptr<train::GradientReducer> reducer_;
};

}  // namespace headroom::bench
