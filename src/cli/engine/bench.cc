// The commands bench and golden.
#include <fmt/ranges.h>

#include <algorithm>

#include "engine.h"
#include "engine/kernels/cpu/attention/softmax_rows.h"
#include "engine/kernels/cpu/matmul/tile_product.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/text/format.h"
#include "foundation/core/transformed.h"
#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "headroom/models/compute.h"
#include "tools/bench/bench.h"
#include "tools/bench/bench_names.h"
#include "tools/golden/golden.h"

namespace headroom::cli {

namespace {

// Whether the arguments after these benchmarks are configs.
bool takes_configs(const std::vector<std::string>& names) {
  return !names.empty() && (names.front() == "generation" || names.front() == "evaluate");
}

}  // namespace

int run(const Bench& command, const EngineRequest& request) {
  if (!command.serve.empty()) {
    return bench::serve(command.serve);
  }
  const std::vector<std::string> known =
      transformed(bench::kBenchNames, [](const bench::BenchName& bench) { return std::string(bench.name); });
  std::vector<std::string> names = command.names, configs = command.configs;
  if (takes_configs(names)) {
    configs.insert(configs.end(), names.begin() + 1, names.end());
    names.resize(1);
  }
  for (const std::string& name : names) {
    if (std::ranges::find(known, name) == known.end()) {
      user_error("bench: {}: unknown benchmark; choose among {}", name, fmt::join(known, ", "));
    }
  }
  const bool profiles = names == std::vector<std::string>{"profile"} || names == std::vector<std::string>{"products"};
  if (!(configs.empty() && command.set.empty()) && !profiles && !takes_configs(names)) {
    user_error("bench: {}: only for `bench profile`, `products`, `generation` and `evaluate`, got {}",
               configs.empty() ? "--set" : "--config",
               names.empty() ? "all benchmarks" : fmt::format("{}", fmt::join(names, ", ")));
  }
  for (const std::string& config : configs) {
    config::load_config(config, command.set);  // reports errors before anything is printed
  }
  const bench::BenchOptions options{.repeats = command.repeats,
                                    .threads = request.threads,
                                    .precision = command.precision,
                                    .device = models::resolve(command.device).str(),
                                    .plots = command.plots,
                                    .configs = configs,
                                    .set = command.set,
                                    .batch = command.batch,
                                    .prompt = command.prompt,
                                    .tokens = command.tokens};
  if (names == std::vector<std::string>{"generation"}) {
    bench::check_generation(options);
  }
  request.output.text(fmt::format("{}, {}, {} vectors, tiles by {}\n\n", cpu_name(),
                                  counted(options.threads > 0 ? options.threads : physical_cores(), "thread"),
                                  kernels::simd_target(), kernels::tile_product_target()));
  std::vector<bench::Row> all;
  for (const std::string& name : names.empty() ? known : names) {
    const std::vector<bench::Row> rows = bench::run(name, options);
    request.output.text(fmt::format("{}\n{}\n", name, bench::to_table(rows)));
    all.insert(all.end(), rows.begin(), rows.end());
  }
  request.output.document(bench::to_json(all));
  return 0;
}

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
