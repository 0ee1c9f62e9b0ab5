// Distillation: a run learns from a trained model's predictions in addition to the data (train.teacher).
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <string>

#include "headroom/config/config.h"
#include "headroom/models/language_model.h"
#include "headroom/tokenizers/tokenizer.h"

namespace headroom::train {

// The k most likely tokens at each position, and all other tokens as one class.
struct TopPredictions {
  at::Tensor index;            // [B, T, k] int32
  at::Tensor log_probability;  // [B, T, k + 1] float32; the last entry is for all others together
};

// Returns the top predictions of logits [B, T, V], k < V, divided by the temperature.
TopPredictions top_predictions(const at::Tensor& logits, std::int64_t k, double temperature);

class Teacher {
 public:
  // Opens config.train.teacher on the device of `model`. Throws UserError naming the key if the teacher has memory, is
  // another kind of model, or has another tokenizer or parameters other than train.teacher_sha256.
  Teacher(const config::Config& config, const tokenizers::Tokenizer* tokenizer, at::Device device);

  // Adds the teacher's predictions to a batch (models::Distillation), without gradients, in the precision of `context`.
  void add_predictions(models::Batch& batch, const nn::Context& context);

  const std::string& parameters_sha256() const { return parameters_sha256_; }
  std::int64_t parameters() const { return model_->parameters().count(); }
  // Returns the bytes of the teacher's parameters and of its logits for `rows` sequences of `length` tokens.
  double memory(std::int64_t rows, std::int64_t length) const;

 private:
  std::unique_ptr<models::Model> model_;
  models::Distillation distillation_;
  std::string parameters_sha256_;
};

// Logs the teacher's requirements. Throws UserError if the memory cannot hold the teacher in addition to a step.
void require_memory(const Teacher& teacher, const config::Config& config);

// Whether the model can be a teacher: a language model without memory.
bool can_teach(const config::ModelOptions& model);

// Returns null if train.teacher is not set.
std::unique_ptr<Teacher> open_teacher(const config::Config& config, const tokenizers::Tokenizer* tokenizer,
                                      at::Device device);

}  // namespace headroom::train
