#include "run_model.h"

#include <ATen/Parallel.h>

#include <filesystem>
#include <string_view>

#include "headroom/core/error.h"
#include "headroom/models/compute.h"
#include "headroom/store/run_folder.h"

namespace headroom::cli {
namespace {

void refuse_foreign(const GivenOption& option, config::ModelKind kind) {
  if (option.given && option.kind != kind) {
    user_error("{}: needs model.kind = \"{}\", not \"{}\"", option.name, config::name_of(option.kind),
               config::name_of(kind));
  }
}

void refuse_nan(const store::OpenedModel& opened) {
  for (const auto& [name, tensor] : opened.checkpoint.tensors) {
    if (name.starts_with("model.") && !tensor.isfinite().all().item<bool>()) {
      fail("{}: parameter {} has values that are NaN or infinite; use an earlier checkpoint", opened.name,
           name.substr(std::string_view("model.").size()));
    }
  }
}

}  // namespace

store::OpenedModel open_model(const Opening& opening, const EngineRequest& request) {
  const ModelChoice& choice = opening.choice;
  store::OpenedModel opened =
      store::open_model(choice.run, {.average = choice.average,
                                     .device = choice.device,
                                     .threads = request.threads,
                                     .precision = config::value_named<config::Precision>(choice.precision),
                                     .writes = opening.writes});
  refuse_nan(opened);
  const config::ModelKind kind = opened.config().model.kind;
  constexpr config::ModelKind kTranslates = config::ModelKind::encoder_decoder;
  refuse_foreign({"--beam", choice.decoding.beam.has_value(), kTranslates}, kind);
  refuse_foreign({"--length-penalty", choice.decoding.length_penalty.has_value(), kTranslates}, kind);
  for (const GivenOption& option : opening.options) {
    refuse_foreign(option, kind);
  }
  config::DecodingOptions& o = opened.checkpoint.config.decoding;
  o.beam_size = choice.decoding.beam.value_or(o.beam_size);
  o.length_penalty = choice.decoding.length_penalty.value_or(o.length_penalty);
  return opened;
}

std::vector<ModelChoice> choices_of(const SeveralModels& models) {
  std::vector<ModelChoice> all;
  const auto add = [&](const std::string& run) {
    ModelChoice& choice = all.emplace_back();
    choice.run = run;
    choice.device = models.device;
    choice.precision = models.precision;
  };
  for (const std::string& run : models.runs) {
    if (models.checkpoints.empty()) {
      add(run);
      continue;
    }
    for (const std::filesystem::path& file : store::checkpoints_of(run)) {
      add(file.string());
    }
  }
  return all;
}

void tell_computation(Json& document, const store::OpenedModel& opened) {
  document["threads"] = at::get_num_threads();
  document["precision"] = config::name_of(models::resolve(opened.config().train.precision, opened.model->device()));
}

}  // namespace headroom::cli
