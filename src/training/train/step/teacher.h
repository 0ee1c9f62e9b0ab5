// Distillation: a run learns from a trained model's predictions in addition to the data (train.teacher).
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "headroom/config/config.h"
#include "headroom/models/language_model.h"
#include "headroom/tokenizers/tokenizer.h"

namespace headroom::train {

// The most likely tokens of a teacher's predictions, on disk.

// The k most likely tokens at each position, and all other tokens as one class.
struct TopPredictions {
  at::Tensor index;            // [B, T, k] int32
  at::Tensor log_probability;  // [B, T, k + 1] float32; the last entry is for all others together
};

// Returns the top predictions of logits [B, T, V], k < V, divided by the temperature.
TopPredictions top_predictions(const at::Tensor& logits, std::int64_t k, double temperature);

// Bytes per position in the cache.
constexpr std::int64_t prediction_bytes(std::int64_t k) {
  return 4 * k + 4 * (k + 1);
}

// Stores one file per micro-batch, keyed by its tokens. A file holds the bits that were computed, which depend only on
// the micro-batch, so neither the order of runs nor their ranks nor a deleted cache changes a result. A corrupt file
// counts as missing. Any number of processes may share a folder. If predictions cannot be stored, for example because
// the disk is full, the cache warns once and stores nothing more.
class PredictionCache {
 public:
  // `settings` names everything else that the predictions depend on. If `cache` is empty, nothing is stored.
  // `kept_free`: bytes to leave free on the file system.
  PredictionCache(const std::filesystem::path& cache, const std::string& settings, std::int64_t k,
                  double kept_free = 0.0);

  struct Room {
    double needed = 0.0;     // maximum number of bytes for positions that are not stored yet
    double stored = 0.0;     // bytes already stored
    double available = 0.0;  // bytes available on the file system, without kept_free; infinite if unknown
    bool is_enough() const { return needed <= available; }
  };
  // Returns the room for the predictions at this many positions. If it is not enough, stores nothing from now on;
  // stored predictions are still read.
  Room reserve(double positions);

  // Returns the predictions for tokens [B, T] int64, from make() if they are not stored yet.
  TopPredictions get(const at::Tensor& tokens, const std::function<TopPredictions()>& make);
  const std::filesystem::path& folder() const { return folder_; }  // empty: nothing is stored

 private:
  void store(const std::filesystem::path& file, const TopPredictions& predictions);
  double available() const;

  std::filesystem::path folder_;
  std::int64_t k_;
  double kept_free_;
  bool stores_ = true;
};

class Teacher {
 public:
  // Opens config.train.teacher on the device of `model`. Throws UserError naming the key if the teacher has memory, is
  // another kind of model, or has another tokenizer or parameters other than train.teacher_sha256. With
  // train.teacher_top_k, its predictions are stored in the folder `cache`, unless `cache` is empty.
  Teacher(const config::Config& config, const tokenizers::Tokenizer* tokenizer, at::Device device,
          std::filesystem::path cache);

  // Adds the teacher's predictions to a batch (models::Distillation), without gradients, in the precision of `context`.
  void add_predictions(models::Batch& batch, const nn::Context& context);

  const std::string& parameters_sha256() const { return parameters_sha256_; }
  std::int64_t parameters() const { return model_->parameters().count(); }
  // Returns the bytes of the teacher's parameters and of its logits for `rows` sequences of `length` tokens.
  double memory(std::int64_t rows, std::int64_t length) const;
  // Opens the prediction cache and logs the disk space for `positions` further positions. If the file system has less
  // space (after leaving `kept_free` bytes), warns and stores nothing. Does nothing without train.teacher_top_k.
  void open_cache(const nn::Context& context, double positions, double kept_free);

 private:
  at::Tensor logits(const at::Tensor& tokens, const nn::Context& context) const;
  std::string cache_settings(const nn::Context& context) const;  // everything that the predictions depend on

  std::unique_ptr<models::Model> model_;
  models::Distillation distillation_;
  std::string parameters_sha256_;
  std::int64_t top_k_;
  std::filesystem::path cache_folder_;
  std::optional<PredictionCache> cache_;  // opened before the first batch
};

// Whether the model can be a teacher: a language model without memory.
bool can_teach(const config::ModelOptions& model);

// Returns null if train.teacher is not set.
std::unique_ptr<Teacher> open_teacher(const config::Config& config, const tokenizers::Tokenizer* tokenizer,
                                      at::Device device, const std::filesystem::path& cache = {});

}  // namespace headroom::train
