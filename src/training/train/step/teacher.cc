#include "teacher.h"

#include <ATen/core/grad_mode.h>

#include <limits>

#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/text/format.h"
#include "headroom/config/attention_part.h"
#include "headroom/core/error.h"
#include "headroom/models/compute.h"
#include "headroom/store/open_model.h"
#include "state.h"
#include "training/cost/cost.h"

namespace headroom::train {
namespace {

constexpr double kLeastLog = -100.0;  // of the remaining probability, which may be 0 in float32

}  // namespace

TopPredictions top_predictions(const at::Tensor& logits, std::int64_t k, double temperature) {
  const at::Tensor log_p = (logits.to(at::kFloat) / temperature).log_softmax(-1);
  const auto [top, index] = log_p.topk(k, -1);
  const at::Tensor others = log_p.scatter(-1, index, -std::numeric_limits<double>::infinity()).logsumexp(-1, true);
  return {.index = index.to(at::kInt), .log_probability = at::cat({top, others.clamp_min(kLeastLog)}, -1)};
}

Teacher::Teacher(const config::Config& config, const tokenizers::Tokenizer* tokenizer, at::Device device)
    : distillation_{.weight = config.train.teacher_weight, .temperature = config.train.teacher_temperature} {
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
  model_ = store::build_model(checkpoint, device);
  parameters_sha256_ = train::parameters_sha256(model_->parameters());
  if (!config.train.teacher_sha256.empty() && config.train.teacher_sha256 != parameters_sha256_) {
    user_error("train.teacher_sha256: is {}, but the parameters of {} have hash {}", config.train.teacher_sha256, name,
               parameters_sha256_);
  }
}

void Teacher::add_predictions(models::Batch& batch, const nn::Context& context) {
  const at::NoGradGuard guard;
  const at::Tensor& all = batch.at("tokens");
  const at::Tensor tokens = batch.find("targets").defined() ? all : all.slice(1, 0, -1);
  nn::Context reads;
  reads.compute_dtype = context.compute_dtype;
  reads.implementation = context.implementation;
  models::Memory memory;
  batch.distillation = distillation_;
  batch.tensors["teacher"] =
      models::as_language_model(*model_, "train.teacher").logits(tokens, memory, reads).to(at::kFloat);
}

double Teacher::memory(std::int64_t rows, std::int64_t length) const {
  const auto logits =
      static_cast<double>(rows) * static_cast<double>(length) * static_cast<double>(model_->options().vocabulary_size);
  return 4.0 * (static_cast<double>(parameters()) + logits);
}

void require_memory(const Teacher& teacher, const config::Config& config) {
  const config::TrainOptions& train = config.train;
  const double needed = teacher.memory(train.batch_size / train.accumulate, config.model.context_length);
  const double step = static_cast<double>(cost::step_memory(config).total);
  const auto available = static_cast<double>(memory_limit_bytes());
  log_info("train.teacher: {}, {} parameters; {} of memory with its logits of a micro-batch", train.teacher,
           format_count(static_cast<double>(teacher.parameters())), format_bytes(needed));
  if (models::resolve(train.device).is_cpu() && available > 0.0 && step + needed > available) {
    user_error(
        "train.teacher: needs {} of memory beside the {} of a step, but only {} are available; try a larger "
        "train.accumulate",
        format_bytes(needed), format_bytes(step), format_bytes(available));
  }
}

bool can_teach(const config::ModelOptions& model) {
  return model.kind == config::ModelKind::language_model && model.memory_length == 0;
}

std::unique_ptr<Teacher> open_teacher(const config::Config& config, const tokenizers::Tokenizer* tokenizer,
                                      at::Device device) {
  return config.train.teacher.empty() ? nullptr : std::make_unique<Teacher>(config, tokenizer, device);
}

}  // namespace headroom::train
