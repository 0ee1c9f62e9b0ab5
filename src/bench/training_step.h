// The trainer's step without its files: loss, gradients, clipping, AdamW, on tokens drawn once.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "headroom/models/language_model.h"

namespace headroom::bench {

class TrainingStep {
 public:
  // precision: "fp32" or "bf16" products.
  TrainingStep(const config::ModelOptions& options, std::int64_t batch, const std::string& precision);
  void operator()();

 private:
  models::LanguageModel model_;
  at::Tensor tokens_;
  nn::Context context_;
  models::Memory memory_;
  std::vector<at::Tensor> parameters_, m_, v_;
  std::int64_t step_ = 0;
};

}  // namespace headroom::bench
