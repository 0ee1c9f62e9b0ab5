// The likeliest tokens of a teacher's predictions, on disk.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace headroom::train {

// The k most likely tokens at each position, and all others as one class.
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

// Predictions by the tokens of a whole micro-batch, one file for each. A file holds the bits that were computed, and
// these depend on the micro-batch alone, so neither the order of runs nor their ranks nor a deleted cache changes a
// result. A damaged file counts as missing. Any number of processes may use a folder together.
class PredictionCache {
 public:
  // `settings` names everything else that the predictions depend on. If `cache` is empty, nothing is stored.
  PredictionCache(const std::filesystem::path& cache, const std::string& settings, std::int64_t k);

  // Returns the predictions for tokens [B, T] int64, from make() if they are not stored yet.
  TopPredictions get(const at::Tensor& tokens, const std::function<TopPredictions()>& make);
  const std::filesystem::path& folder() const { return folder_; }  // empty: nothing is stored

 private:
  void store(const std::filesystem::path& file, const TopPredictions& predictions);

  std::filesystem::path folder_;
  std::int64_t k_;
};

}  // namespace headroom::train
