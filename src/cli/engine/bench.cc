// The command bench.
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
  const bool profiles = names == std::vector<std::string>{"profile"};
  if (!(configs.empty() && command.set.empty()) && !profiles && !takes_configs(names)) {
    user_error("bench: {}: only for `bench profile`, `generation` and `evaluate`, got {}",
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

}  // namespace headroom::cli
