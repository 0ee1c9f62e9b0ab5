// The trainer's step without its files, on a batch drawn once.
#pragma once

#include <memory>
#include <string>

#include "headroom/train/step.h"

namespace headroom::bench {

// What a run with these products, "fp32" or "bf16", computes in.
nn::Context context_for(const std::string& precision, at::Device device);

class TrainingStep {
 public:
  TrainingStep(const config::ModelOptions& options, std::int64_t batch, const std::string& precision,
               at::Device device);
  void operator()();

 private:
  std::unique_ptr<models::Model> model_;
  models::Batch batch_;
  nn::Context context_;
  config::TrainOptions options_;
  train::TrainState state_;
};

}  // namespace headroom::bench
