// The engine's entry point, and helpers shared by its commands.
#include "engine.h"

#include <ATen/Parallel.h>

#include <filesystem>
#include <fstream>
#include <string_view>

#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/text/format.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/models/compute.h"
#include "headroom/ops/choice.h"
#include "headroom/store/checkpoint.h"

namespace headroom::cli {

namespace {

// Logs how often each operator ran fused, and why it did not.
void log_operator_choices() {
  for (const auto& [name, chosen] : ops::implementation_counts()) {
    log_debug("{}: fused {} times, reference {} times{}", name, chosen.fused, chosen.reference,
              chosen.refusal.empty() ? "" : ": " + chosen.refusal);
  }
}

void check_applies(const GivenOption& option, config::ModelKind kind) {
  if (option.given && option.kind != kind) {
    user_error("{}: needs model.kind = \"{}\", got \"{}\"", option.name, config::name_of(option.kind),
               config::name_of(kind));
  }
}

}  // namespace

void require_replaceable_file(const std::string& path, std::string_view option, std::string_view begins,
                              std::string_view difference) {
  require_writable(path, option);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    return;
  }
  if (!std::filesystem::is_regular_file(path, ignored)) {
    user_error("{}: {} exists and is not a regular file; choose another name", option, printable(path));
  }
  std::string found(begins.size(), '\0');
  std::ifstream(path).read(found.data(), static_cast<std::streamsize>(found.size()));
  if (found != begins) {
    user_error("{}: {} exists and {}; choose another name", option, printable(path), difference);
  }
}

store::OpenedModel open_model(const Opening& opening, const EngineRequest& request) {
  const ModelChoice& choice = opening.choice;
  store::OpenedModel opened =
      store::open_model(choice.run, {.average = choice.average,
                                     .device = choice.device,
                                     .threads = request.threads,
                                     .precision = config::value_named<config::Precision>(choice.precision),
                                     .writes = opening.writes});
  store::require_finite(opened.checkpoint, opened.name);
  const config::ModelKind kind = opened.config().model.kind;
  constexpr config::ModelKind kTranslates = config::ModelKind::encoder_decoder;
  check_applies({"--beam", choice.decoding.beam.has_value(), kTranslates}, kind);
  check_applies({"--length-penalty", choice.decoding.length_penalty.has_value(), kTranslates}, kind);
  for (const GivenOption& option : opening.options) {
    check_applies(option, kind);
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

void add_computation(Json& document, const store::OpenedModel& opened) {
  document["threads"] = at::get_num_threads();
  document["precision"] = config::name_of(models::resolve(opened.config().train.precision, opened.model->device()));
}

}  // namespace headroom::cli

extern "C" int headroom_engine_run(const headroom::cli::EngineRequest& request) {
  headroom::keep_freed_memory();
  return headroom::cli::run_distributed(request, [&] {
    headroom::models::set_threads(request.threads);
    const int status =
        std::visit([&](const auto& command) { return headroom::cli::run(command, request); }, request.command);
    headroom::cli::log_operator_choices();
    return status;
  });
}

// The program casts the symbol to this type.
static_assert(std::is_same_v<decltype(&headroom_engine_run), headroom::cli::EngineEntry>);
