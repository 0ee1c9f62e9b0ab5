#include "run_model.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "headroom/core/error.h"
#include "headroom/models/compute.h"

namespace headroom::cli {

namespace {

void refuse_foreign(const GivenOption& option, config::ModelKind kind) {
  if (option.given && option.kind != kind) {
    misuse("{}: needs model.kind = \"{}\", not \"{}\"", option.name, config::name_of(option.kind),
           config::name_of(kind));
  }
}

}  // namespace

RunModel open_run_model(const std::string& run, std::int64_t average, const Decoding& decoding,
                        std::initializer_list<GivenOption> more) {
  RunModel model;
  if (average > 1) {
    model.name = fmt::format("{} (mean of {} checkpoints)", run, average);
    model.checkpoint = store::average_checkpoints(run, average);
  } else {
    const std::filesystem::path file = store::find_checkpoint(run);
    model.name = file.string();
    model.checkpoint = store::read_checkpoint(file);
  }
  const config::ModelKind kind = model.checkpoint.config.model.kind;
  constexpr config::ModelKind kTranslates = config::ModelKind::encoder_decoder;
  refuse_foreign({"--beam", decoding.beam.has_value(), kTranslates}, kind);
  refuse_foreign({"--length-penalty", decoding.length_penalty.has_value(), kTranslates}, kind);
  for (const GivenOption& option : more) {
    refuse_foreign(option, kind);
  }
  config::DecodingOptions& o = model.checkpoint.config.decoding;
  o.beam = decoding.beam.value_or(o.beam);
  o.length_penalty = decoding.length_penalty.value_or(o.length_penalty);
  return model;
}

void tell_computation(Json& document, const RunModel& run, at::Device device) {
  document["threads"] = at::get_num_threads();
  document["precision"] = config::name_of(models::resolve(run.checkpoint.config.train.precision, device));
}

void use_threads(const RunModel& run, const EngineRequest& request) {
  models::set_threads(request.threads > 0 ? request.threads : run.checkpoint.config.train.threads);
}

}  // namespace headroom::cli
