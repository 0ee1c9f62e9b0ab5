// Distillation: a trained model whose predictions a run learns in addition to the data (train.teacher).
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <string>

#include "headroom/config/config.h"
#include "headroom/models/language_model.h"
#include "headroom/tokenizers/tokenizer.h"

namespace headroom::train {

class Teacher {
 public:
  // Opens config.train.teacher on the device of `model`. Throws UserError naming the key if the teacher has memory, is
  // another kind of model, or has another tokenizer or parameters other than train.teacher_sha256.
  Teacher(const config::Config& config, const tokenizers::Tokenizer* tokenizer, at::Device device);

  // Adds the teacher's logits to a batch, without gradients, in the precision of `context`.
  void add_logits(models::Batch& batch, const nn::Context& context) const;

  const std::string& parameters_sha256() const { return parameters_sha256_; }
  std::int64_t parameters() const { return model_->parameters().count(); }

 private:
  std::unique_ptr<models::Model> model_;
  models::Distillation distillation_;
  std::string parameters_sha256_;
};

// Returns null if train.teacher is not set.
std::unique_ptr<Teacher> open_teacher(const config::Config& config, const tokenizers::Tokenizer* tokenizer,
                                      at::Device device);

}  // namespace headroom::train
