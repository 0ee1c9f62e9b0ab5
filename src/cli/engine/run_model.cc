#include "run_model.h"

#include <ATen/Parallel.h>

#include <filesystem>
#include <string_view>

#include "headroom/core/error.h"
#include "headroom/models/compute.h"
#include "headroom/store/run_folder.h"

namespace headroom::cli {
namespace {

void check_applies(const GivenOption& option, config::ModelKind kind) {
  if (option.given && option.kind != kind) {
    user_error("{}: needs model.kind = \"{}\", got \"{}\"", option.name, config::name_of(option.kind),
               config::name_of(kind));
  }
}

void check_finite(const store::OpenedModel& opened) {
  for (const auto& [name, tensor] : opened.checkpoint.tensors) {
    if (name.starts_with("model.") && !tensor.isfinite().all().item<bool>()) {
      fail("{}: parameter {} has NaN or infinite values; use an earlier checkpoint", opened.name,
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
  check_finite(opened);
  const config::ModelKind kind = opened.config().model.kind;
  constexpr config::ModelKind kTranslates = config::ModelKind::encoder_decoder;
  check_applies({"--beam", choice.decoding.beam.has_value(), kTranslates}, kind);
  check_applies({"--length-penalty", choice.decoding.length_penalty.has_value(), kTranslates}, kind);
  for (const GivenOption& option : opening.options) {
    check_applies(option, kind);
  }
  config::DecodingOptions& o = opened.checkpoint.config.decoding;
  o.beam = choice.decoding.beam.value_or(o.beam);
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

void add_computation(Json& document, const store::OpenedModel& opened) {
  document["threads"] = at::get_num_threads();
  document["precision"] = config::name_of(models::resolve(opened.config().train.precision, opened.model->device()));
}

}  // namespace headroom::cli
