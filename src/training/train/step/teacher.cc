#include "teacher.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/version.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <system_error>
#include <utility>

#include "engine/store/stored_tensors.h"
#include "foundation/core/files/folders.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/text/format.h"
#include "headroom/config/attention_part.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/store/open_model.h"
#include "state.h"

namespace headroom::train {

namespace {

constexpr double kLeastLog = -100.0;  // of the remaining probability, which may be 0 in float32

using store::bytes_of;

std::string hash_of(const TopPredictions& predictions) {
  return sha256_of(bytes_of(predictions.index), bytes_of(predictions.log_probability));
}

// Fills `stored`, whose tensors have the expected shapes. Returns false if the file is missing or corrupt.
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
  Room room{.stored = folder_bytes(folder_), .available = available()};
  room.needed = std::max(0.0, positions * static_cast<double>(prediction_bytes(k_)) - room.stored);
  stores_ = stores_ && room.is_enough();
  return room;
}

double PredictionCache::available() const {
  return std::max(0.0, available_bytes(folder_) - kept_free_);
}

TopPredictions PredictionCache::get(const at::Tensor& tokens, const std::function<TopPredictions()>& make) {
  if (folder_.empty()) {
    return make();
  }
  const at::Tensor key = tokens.to(at::kCPU).contiguous();
  const std::string name = name_of(key);
  const std::filesystem::path file =
      folder_ / name.substr(0, 2) / name;  // few files per folder, so that listing is quick
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
      available() < bytes) {
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

Teacher::Teacher(const config::Config& config, const tokenizers::Tokenizer* tokenizer, at::Device device,
                 std::filesystem::path cache)
    : distillation_{.weight = config.train.teacher_weight, .temperature = config.train.teacher_temperature},
      top_k_(config.train.teacher_top_k),
      cache_folder_(std::move(cache)) {
  const std::string& name = config.train.teacher;
  if (config.model.kind != config::ModelKind::language_model) {
    user_error("train.teacher: is for language models only, but model.kind is {}; leave it out",
               config::name_of(config.model.kind));
  }
  const store::Checkpoint checkpoint = [&] {
    try {
      const std::filesystem::path file = store::find_checkpoint(name);
      store::Checkpoint found = store::read_checkpoint(file);
      store::require_finite(found, file.string());
      return found;
    } catch (const UserError& error) {
      user_error("train.teacher: {}", error.what());
    }
  }();
  const config::ModelOptions& of = checkpoint.config.model;
  if (!can_teach(of)) {
    user_error(
        "train.teacher: {} must be a language_model without memory, got model.kind = \"{}\" and "
        "model.memory_length = {}",
        name, config::name_of(of.kind), of.memory_length);
  }
  if (tokenizer == nullptr || checkpoint.tokenizer->name() != tokenizer->name()) {
    user_error("train.teacher: {} has tokenizer {}, but the run has {}; set tokenizer.model to the teacher's", name,
               checkpoint.tokenizer->name(), tokenizer == nullptr ? "none" : tokenizer->name());
  }
  if (of.context_length < config.model.context_length &&
      of.attention.position->added_vectors() != config::AddedVectors::none) {
    user_error("train.teacher: {} has positions for {} tokens, but model.context_length is {}", name, of.context_length,
               config.model.context_length);
  }
  if (of.vocabulary_size != config.model.vocabulary_size) {
    user_error("train.teacher: {} predicts {} tokens, but model.vocabulary_size is {}; they must be equal", name,
               of.vocabulary_size, config.model.vocabulary_size);
  }
  if (top_k_ >= of.vocabulary_size) {
    user_error(
        "train.teacher_top_k: must be below the vocabulary size of {}, {}, got {}; 0 learns all of the distribution",
        name, of.vocabulary_size, top_k_);
  }
  model_ = store::build_model(checkpoint, device);
  parameters_sha256_ = train::parameters_sha256(model_->parameters());
  if (!config.train.teacher_sha256.empty() && config.train.teacher_sha256 != parameters_sha256_) {
    user_error("train.teacher_sha256: is {}, but the parameters of {} have hash {}", config.train.teacher_sha256, name,
               parameters_sha256_);
  }
}

at::Tensor Teacher::logits(const at::Tensor& tokens, const nn::Context& context) const {
  const at::NoGradGuard guard;
  nn::Context reads;
  reads.compute_dtype = context.compute_dtype;
  reads.implementation = context.implementation;
  models::Memory memory;
  return models::as_language_model(*model_, "train.teacher").logits(tokens, memory, reads).to(at::kFloat);
}

void Teacher::add_predictions(models::Batch& batch, const nn::Context& context) {
  const at::NoGradGuard guard;
  const at::Tensor& all = batch.at("tokens");
  const at::Tensor tokens = batch.find("targets").defined() ? all : all.slice(1, 0, -1);
  batch.distillation = distillation_;
  if (top_k_ == 0) {
    batch.tensors["teacher"] = logits(tokens, context);
    return;
  }
  if (!cache_) {
    cache_.emplace(cache_folder_, cache_settings(context), top_k_);
  }
  const TopPredictions top =
      cache_->get(tokens, [&] { return top_predictions(logits(tokens, context), top_k_, distillation_.temperature); });
  batch.tensors["teacher"] = top.log_probability;
  batch.tensors["teacher_index"] = top.index;
}

double Teacher::memory(std::int64_t rows, std::int64_t length) const {
  const auto logits =
      static_cast<double>(rows) * static_cast<double>(length) * static_cast<double>(model_->options().vocabulary_size);
  return 4.0 * (static_cast<double>(parameters()) + logits);
}

std::string Teacher::cache_settings(const nn::Context& context) const {
  return fmt::format("{} {} {} {} {} {} {} {} {}", parameters_sha256_, distillation_.temperature,
                     context.compute_dtype ? at::toString(*context.compute_dtype) : "none",
                     config::name_of(context.implementation), model_->device().str(), cpu_name(),
                     fmt::join(cpu_features(), " "), at::get_num_threads(), TORCH_VERSION);
}

void Teacher::open_cache(const nn::Context& context, double positions, double kept_free) {
  if (top_k_ == 0 || cache_folder_.empty()) {
    return;
  }
  cache_.emplace(cache_folder_, cache_settings(context), top_k_, kept_free);
  const PredictionCache::Room room = cache_->reserve(positions);
  const std::string folder = (cache_folder_ / "teacher").string();
  if (!room.is_enough()) {
    log_warning(
        "train.teacher_top_k: its predictions for this run need {} in {}, but only {} are free beside {} for "
        "checkpoints; they are computed for every batch instead of stored (HEADROOM_CACHE sets another folder)",
        format_bytes(room.needed), folder, format_bytes(room.available), format_bytes(kept_free));
    return;
  }
  log_info(
      "train.teacher_top_k: its {} most likely of {} tokens are stored in {}: {} per position, at most {} for this "
      "run{}",
      top_k_, model_->options().vocabulary_size, folder, format_bytes(static_cast<double>(prediction_bytes(top_k_))),
      format_bytes(room.needed),
      room.stored > 0.0 ? fmt::format(" beside the {} of earlier runs", format_bytes(room.stored)) : "");
}

bool can_teach(const config::ModelOptions& model) {
  return model.kind == config::ModelKind::language_model && model.memory_length == 0;
}

std::unique_ptr<Teacher> open_teacher(const config::Config& config, const tokenizers::Tokenizer* tokenizer,
                                      at::Device device, const std::filesystem::path& cache) {
  return config.train.teacher.empty() ? nullptr : std::make_unique<Teacher>(config, tokenizer, device, cache);
}

}  // namespace headroom::train
