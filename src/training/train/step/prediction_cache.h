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
// result. A damaged file counts as missing. Any number of processes may use a folder together. A cache that cannot
// store more, because the disk is full for example, warns once and goes on without storing.
class PredictionCache {
 public:
  // `settings` names everything else that the predictions depend on. If `cache` is empty, nothing is stored.
  // `kept_free`: bytes of the file system that are left to others.
  PredictionCache(const std::filesystem::path& cache, const std::string& settings, std::int64_t k,
                  double kept_free = 0.0);

  struct Room {
    double needed = 0.0;     // bytes for the positions that are not stored yet, at most
    double stored = 0.0;     // bytes that are stored
    double available = 0.0;  // bytes of the file system, without kept_free; infinite if unknown
    bool is_enough() const { return needed <= available; }
  };
  // Returns the room that the predictions at so many positions need. If it is not enough, stores nothing from now on;
  // what is stored is still read.
  Room reserve(double positions);

  // Returns the predictions for tokens [B, T] int64, from make() if they are not stored yet.
  TopPredictions get(const at::Tensor& tokens, const std::function<TopPredictions()>& make);
  const std::filesystem::path& folder() const { return folder_; }  // empty: nothing is stored

 private:
  void store(const std::filesystem::path& file, const TopPredictions& predictions);
  double available_bytes() const;

  std::filesystem::path folder_;
  std::int64_t k_;
  double kept_free_;
  bool stores_ = true;
};

}  // namespace headroom::train
