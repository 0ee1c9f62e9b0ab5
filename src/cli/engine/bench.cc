#include "headroom/bench/bench.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "engine.h"
#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "headroom/core/system.h"
#include "headroom/kernels/cpu/softmax_rows.h"
#include "headroom/kernels/cpu/tile_product.h"
#include "headroom/models/compute.h"

namespace headroom::cli {

int run(const Bench& command, const EngineRequest& request) {
  if (!command.serve.empty()) {
    return bench::serve(command.serve);
  }
  std::vector<std::string> known;
  std::string list;
  for (const auto& [name, about] : bench::names()) {
    known.push_back(name);
    list += fmt::format("{:<18}{}\n", name, about);
  }
  if (command.list) {
    request.output.text(list);
    request.output.document(known);
    return 0;
  }
  for (const std::string& name : command.names) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      misuse("bench: {}: no such benchmark; there are {}", name, fmt::join(known, ", "));
    }
  }
  if (!command.configs.empty() && command.names != std::vector<std::string>{"profile"}) {
    misuse("bench: --config: is of `bench profile` alone, got {}",
           command.names.empty() ? "all benchmarks" : fmt::format("{}", fmt::join(command.names, ", ")));
  }
  for (const std::string& config : command.configs) {
    config::load_config(config);  // refused before anything is printed
  }
  const bench::BenchOptions options{.repeats = command.repeats,
                                    .threads = request.threads,
                                    .precision = command.precision,
                                    .device = models::resolve(command.device).str(),
                                    .plots = command.plots,
                                    .configs = command.configs};
  request.output.text(fmt::format("{}, {} threads, {} vectors, tiles by {}\n\n", cpu_name(),
                                  options.threads > 0 ? options.threads : physical_cores(),
                                  kernels::softmax_rows_target(), kernels::tile_product_target()));
  std::vector<bench::Row> all;
  for (const std::string& name : command.names.empty() ? known : command.names) {
    const std::vector<bench::Row> rows = bench::run(name, options);
    request.output.text(fmt::format("{}\n{}\n", name, bench::to_table(rows)));
    all.insert(all.end(), rows.begin(), rows.end());
  }
  request.output.document(bench::to_json(all));
  return 0;
}

}  // namespace headroom::cli
