#include "teacher.h"

#include <ATen/core/grad_mode.h>

#include "headroom/config/attention_part.h"
#include "headroom/core/error.h"
#include "headroom/store/open_model.h"
#include "state.h"

namespace headroom::train {

Teacher::Teacher(const config::Config& config, const tokenizers::Tokenizer* tokenizer, at::Device device)
    : distillation_{.weight = config.train.teacher_weight, .temperature = config.train.teacher_temperature} {
  const std::string& name = config.train.teacher;
  const store::Checkpoint checkpoint = [&] {
    try {
      return store::read_checkpoint(store::find_checkpoint(name));
    } catch (const UserError& error) {
      user_error("train.teacher: {}", error.what());
    }
  }();
  const config::ModelOptions& of = checkpoint.config.model;
  if (of.kind != config::ModelKind::language_model || of.memory_length > 0) {
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
  model_ = store::build_model(checkpoint, device);
  parameters_sha256_ = train::parameters_sha256(model_->parameters());
  if (!config.train.teacher_sha256.empty() && config.train.teacher_sha256 != parameters_sha256_) {
    user_error("train.teacher_sha256: is {}, but the parameters of {} have hash {}", config.train.teacher_sha256, name,
               parameters_sha256_);
  }
}

void Teacher::add_logits(models::Batch& batch, const nn::Context& context) const {
  const at::NoGradGuard guard;
  nn::Context reads;
  reads.compute_dtype = context.compute_dtype;
  reads.implementation = context.implementation;
  const at::Tensor& tokens = batch.at("tokens");
  models::Memory memory;
  batch.tensors["teacher"] =
      models::as_language_model(*model_, "train.teacher")
          .logits(batch.find("targets").defined() ? tokens : tokens.slice(1, 0, -1), memory, reads)
          .to(at::kFloat);
  batch.distillation = distillation_;
}

std::unique_ptr<Teacher> open_teacher(const config::Config& config, const tokenizers::Tokenizer* tokenizer,
                                      at::Device device) {
  return config.train.teacher.empty() ? nullptr : std::make_unique<Teacher>(config, tokenizer, device);
}

}  // namespace headroom::train
