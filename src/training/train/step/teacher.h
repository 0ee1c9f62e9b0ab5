// Distillation: a trained model whose predictions a run learns in addition to the data (train.teacher).
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "headroom/config/config.h"
#include "headroom/models/language_model.h"
#include "headroom/tokenizers/tokenizer.h"
#include "prediction_cache.h"

namespace headroom::train {

class Teacher {
 public:
  // Opens config.train.teacher on the device of `model`. Throws UserError naming the key if the teacher has memory, is
  // another kind of model, or has another tokenizer or parameters other than train.teacher_sha256. With
  // train.teacher_top_k, its predictions are stored in the folder `cache`, unless that is empty.
  Teacher(const config::Config& config, const tokenizers::Tokenizer* tokenizer, at::Device device,
          std::filesystem::path cache);

  // Adds its predictions to a batch (models::Distillation), without gradients, in the precision of `context`.
  void add_predictions(models::Batch& batch, const nn::Context& context);

  const std::string& parameters_sha256() const { return parameters_sha256_; }
  std::int64_t parameters() const { return model_->parameters().count(); }
  // Bytes of its parameters and of its logits for `rows` sequences of `length` tokens.
  double memory(std::int64_t rows, std::int64_t length) const;
  // Opens the cache of its predictions and logs the disk space that those at `positions` further positions need. If the
  // file system has less beside `kept_free` bytes, warns and stores nothing. Does nothing without train.teacher_top_k.
  void open_cache(const nn::Context& context, double positions, double kept_free);

 private:
  at::Tensor logits(const at::Tensor& tokens, const nn::Context& context) const;
  std::string cache_settings(const nn::Context& context) const;  // all that its predictions depend on

  std::unique_ptr<models::Model> model_;
  models::Distillation distillation_;
  std::string parameters_sha256_;
  std::int64_t top_k_;
  std::filesystem::path cache_folder_;
  std::optional<PredictionCache> cache_;  // opened before the first batch
};

// Returns null if train.teacher is not set.
std::unique_ptr<Teacher> open_teacher(const config::Config& config, const tokenizers::Tokenizer* tokenizer,
                                      at::Device device, const std::filesystem::path& cache = {});

}  // namespace headroom::train
