#include "tools/golden/golden.h"

#include "engine.h"
#include "headroom/core/error.h"
#include "headroom/models/compute.h"

namespace headroom::cli {

int run(const Golden& command, const EngineRequest& request) {
  golden::GoldenOptions options;
  options.implementation = command.implementation;
  options.dtype = command.dtype == "float64" ? at::kDouble : at::kFloat;
  options.device = models::resolve(command.device);

  const Output& output = request.output;
  const std::vector<std::filesystem::path> paths(command.paths.begin(), command.paths.end());
  const std::vector<golden::CaseOutcome> outcomes = golden::run_cases(
      paths, options, [&](const golden::CaseOutcome& outcome) { output.text(golden::outcome_line(outcome) + "\n"); });
  const Json document = golden::outcomes_json(outcomes);
  const auto failed = document.at("failed").get<std::int64_t>();
  const auto none_here = document.at("none_here").get<std::int64_t>();
  output.text(fmt::format("{} passed, {} failed{}\n", document.at("passed").get<std::int64_t>(), failed,
                          none_here > 0 ? fmt::format(", {} without a fused version here", none_here) : ""));
  output.document(document);
  return failed == 0 ? 0 : 1;
}

}  // namespace headroom::cli
