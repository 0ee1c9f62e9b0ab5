#include "run_model.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "headroom/core/error.h"
#include "headroom/models/compute.h"
#include "headroom/parallel/world.h"
#include "headroom/store/run_folder.h"

namespace headroom::cli {
namespace {

void refuse_foreign(const GivenOption& option, config::ModelKind kind) {
  if (option.given && option.kind != kind) {
    misuse("{}: needs model.kind = \"{}\", not \"{}\"", option.name, config::name_of(option.kind),
           config::name_of(kind));
  }
}

}  // namespace

store::OpenedModel open_model(const Opening& opening, const EngineRequest& request) {
  const ModelChoice& choice = opening.choice;
  store::OpenedModel opened =
      store::open_model(choice.run, {.average = choice.average,
                                     .device = choice.device,
                                     .threads = parallel::world().threads(request.threads),
                                     .precision = config::value_named<config::Precision>(choice.precision),
                                     .writes = opening.writes});
  const config::ModelKind kind = opened.config().model.kind;
  constexpr config::ModelKind kTranslates = config::ModelKind::encoder_decoder;
  refuse_foreign({"--beam", choice.decoding.beam.has_value(), kTranslates}, kind);
  refuse_foreign({"--length-penalty", choice.decoding.length_penalty.has_value(), kTranslates}, kind);
  for (const GivenOption& option : opening.options) {
    refuse_foreign(option, kind);
  }
  config::DecodingOptions& o = opened.checkpoint.config.decoding;
  o.beam = choice.decoding.beam.value_or(o.beam);
  o.length_penalty = choice.decoding.length_penalty.value_or(o.length_penalty);
  return opened;
}

std::vector<std::string> models_of(const std::vector<std::string>& runs, const std::string& checkpoints) {
  if (checkpoints.empty()) {
    return runs;
  }
  std::vector<std::string> all;
  for (const std::string& run : runs) {
    const std::vector<std::filesystem::path> files = store::checkpoints_of(run);
    std::transform(files.begin(), files.end(), std::back_inserter(all), [](const auto& file) { return file.string(); });
  }
  return all;
}

void tell_computation(Json& document, const store::OpenedModel& opened) {
  document["threads"] = at::get_num_threads();
  document["precision"] = config::name_of(models::resolve(opened.config().train.precision, opened.model->device()));
}

}  // namespace headroom::cli
