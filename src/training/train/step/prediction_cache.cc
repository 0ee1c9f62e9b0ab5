#include "prediction_cache.h"

#include <cstring>
#include <limits>
#include <span>
#include <system_error>
#include <tuple>

#include "foundation/core/machine/log.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"

namespace headroom::train {
namespace {

constexpr double kLeastLog = -100.0;  // of the others' probability, which may be 0 in float32

std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

std::string hash_of(std::string_view text) {
  Sha256 hash;
  hash.update(text);
  return hash.hex();
}

std::string name_of(const at::Tensor& tokens) {
  Sha256 hash;
  hash.update(fmt::format("{} {}\n", tokens.size(0), tokens.size(1)));
  hash.update(bytes_of(tokens));
  return hash.hex().substr(0, 32);
}

}  // namespace

TopPredictions top_predictions(const at::Tensor& logits, std::int64_t k, double temperature) {
  const at::Tensor log_p = (logits.to(at::kFloat) / temperature).log_softmax(-1);
  const auto [top, index] = log_p.topk(k, -1);
  const at::Tensor others = log_p.scatter(-1, index, -std::numeric_limits<double>::infinity()).logsumexp(-1, true);
  return {.index = index.to(at::kInt), .log_probability = at::cat({top, others.clamp_min(kLeastLog)}, -1)};
}

PredictionCache::PredictionCache(const std::filesystem::path& cache, const std::string& settings, std::int64_t k)
    : folder_(cache.empty() ? cache : cache / "teacher" / hash_of(fmt::format("1\n{}\n{}", settings, k)).substr(0, 16)),
      k_(k) {
  if (!folder_.empty()) {
    make_folder(folder_);
  }
}

TopPredictions PredictionCache::get(const at::Tensor& tokens, const std::function<TopPredictions()>& make) {
  if (folder_.empty()) {
    return make();
  }
  const at::Tensor key = tokens.to(at::kCPU).contiguous();
  const std::filesystem::path file = folder_ / name_of(key);
  TopPredictions stored{.index = at::empty({key.size(0), key.size(1), k_}, at::kInt),
                        .log_probability = at::empty({key.size(0), key.size(1), k_ + 1}, at::kFloat)};
  std::error_code absent;
  if (std::filesystem::file_size(file, absent) == stored.index.nbytes() + stored.log_probability.nbytes() && !absent) {
    const MappedFile mapped(file);
    std::memcpy(stored.index.mutable_data_ptr(), mapped.bytes().data(), stored.index.nbytes());
    std::memcpy(stored.log_probability.mutable_data_ptr(), mapped.bytes().data() + stored.index.nbytes(),
                stored.log_probability.nbytes());
    return {.index = stored.index.to(tokens.device()), .log_probability = stored.log_probability.to(tokens.device())};
  }
  TopPredictions made = make();
  store(file, made);
  return made;
}

void PredictionCache::store(const std::filesystem::path& file, const TopPredictions& predictions) {
  const at::Tensor index = predictions.index.to(at::kCPU).contiguous(),
                   log_probability = predictions.log_probability.to(at::kCPU).contiguous();
  try {
    AtomicFile to(file);
    to.write(bytes_of(index));
    to.write(bytes_of(log_probability));
    to.commit();
  } catch (const Error& error) {
    log_warning("train.teacher: its predictions are no longer stored: {}", error.what());
    folder_.clear();
  }
}

}  // namespace headroom::train
