#include "prediction_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>
#include <system_error>

#include "foundation/core/machine/log.h"
#include "foundation/core/text/format.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"

namespace headroom::train {
namespace {

constexpr double kLeastLog = -100.0;  // of the others' probability, which may be 0 in float32

std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

std::string hash_of(const TopPredictions& predictions) {
  return sha256_of(bytes_of(predictions.index), bytes_of(predictions.log_probability));
}

// Fills `stored`, whose tensors have the expected shapes. Returns false if the file is missing or damaged.
bool read(const std::filesystem::path& file, TopPredictions& stored) {
  constexpr std::size_t kHash = 64;
  const std::size_t first = stored.index.nbytes(), second = stored.log_probability.nbytes();
  std::error_code absent;
  if (std::filesystem::file_size(file, absent) != first + second + kHash || absent) {
    return false;
  }
  try {
    const MappedFile mapped(file);
    const std::span<const std::byte> bytes = mapped.bytes();
    if (bytes.size() != first + second + kHash) {
      return false;
    }
    std::memcpy(stored.index.mutable_data_ptr(), bytes.data(), first);
    std::memcpy(stored.log_probability.mutable_data_ptr(), bytes.data() + first, second);
    return std::memcmp(bytes.data() + first + second, hash_of(stored).data(), kHash) == 0;
  } catch (const Error&) {
    return false;  // deleted meanwhile, or not readable
  }
}

// Bytes of all files in a folder, which need not exist. Other processes may add and remove files meanwhile.
double size_of(const std::filesystem::path& folder) {
  double bytes = 0.0;
  std::error_code gone;
  for (std::filesystem::recursive_directory_iterator at(folder, gone), end; !gone && at != end; at.increment(gone)) {
    std::error_code unknown;
    const std::uintmax_t size = at->file_size(unknown);  // an error for a folder
    bytes += unknown ? 0.0 : static_cast<double>(size);
  }
  return bytes;
}

std::string name_of(const at::Tensor& tokens) {
  return sha256_of(fmt::format("{} {}\n", tokens.size(0), tokens.size(1)), bytes_of(tokens)).substr(0, 32);
}

}  // namespace

TopPredictions top_predictions(const at::Tensor& logits, std::int64_t k, double temperature) {
  const at::Tensor log_p = (logits.to(at::kFloat) / temperature).log_softmax(-1);
  const auto [top, index] = log_p.topk(k, -1);
  const at::Tensor others = log_p.scatter(-1, index, -std::numeric_limits<double>::infinity()).logsumexp(-1, true);
  return {.index = index.to(at::kInt), .log_probability = at::cat({top, others.clamp_min(kLeastLog)}, -1)};
}

PredictionCache::PredictionCache(const std::filesystem::path& cache, const std::string& settings, std::int64_t k,
                                 double kept_free)
    : folder_(cache.empty() ? cache
                            : cache / "teacher" / sha256_of(fmt::format("1\n{}\n{}", settings, k)).substr(0, 16)),
      k_(k),
      kept_free_(kept_free) {}

PredictionCache::Room PredictionCache::reserve(double positions) {
  Room room{.stored = size_of(folder_), .available = available_bytes()};
  room.needed = std::max(0.0, positions * static_cast<double>(prediction_bytes(k_)) - room.stored);
  stores_ = stores_ && room.is_enough();
  return room;
}

double PredictionCache::available_bytes() const {
  std::error_code unknown;
  for (std::filesystem::path at = folder_; !at.empty(); at = at.parent_path()) {
    if (const std::filesystem::space_info space = std::filesystem::space(at, unknown); !unknown) {
      return std::max(0.0, static_cast<double>(space.available) - kept_free_);
    }
    if (at == at.parent_path()) {
      break;
    }
  }
  return std::numeric_limits<double>::infinity();
}

TopPredictions PredictionCache::get(const at::Tensor& tokens, const std::function<TopPredictions()>& make) {
  if (folder_.empty()) {
    return make();
  }
  const at::Tensor key = tokens.to(at::kCPU).contiguous();
  const std::string name = name_of(key);
  const std::filesystem::path file = folder_ / name.substr(0, 2) / name;  // few files a folder, quick to list
  TopPredictions stored{.index = at::empty({key.size(0), key.size(1), k_}, at::kInt),
                        .log_probability = at::empty({key.size(0), key.size(1), k_ + 1}, at::kFloat)};
  if (read(file, stored)) {
    return {.index = stored.index.to(tokens.device()), .log_probability = stored.log_probability.to(tokens.device())};
  }
  TopPredictions made = make();
  if (stores_) {
    store(file, made);
  }
  return made;
}

void PredictionCache::store(const std::filesystem::path& file, const TopPredictions& predictions) {
  const TopPredictions made{.index = predictions.index.to(at::kCPU).contiguous(),
                            .log_probability = predictions.log_probability.to(at::kCPU).contiguous()};
  if (const auto bytes = static_cast<double>(made.index.nbytes() + made.log_probability.nbytes());
      available_bytes() < bytes) {
    log_warning(
        "train.teacher: its predictions are no longer stored: the file system of {} has less than {} left, which are "
        "kept free for checkpoints",
        folder_.string(), format_bytes(kept_free_));
    stores_ = false;
    return;
  }
  try {
    make_folder(file.parent_path());
    AtomicFile to(file);
    to.write(bytes_of(made.index));
    to.write(bytes_of(made.log_probability));
    to.write(hash_of(made));
    to.commit();
  } catch (const Error& error) {
    log_warning("train.teacher: its predictions are no longer stored: {}", error.what());
    stores_ = false;
  }
}

}  // namespace headroom::train
