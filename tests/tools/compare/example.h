// A comparison that never ran, for what only shows comparisons.
#pragma once

#include <cmath>
#include <string>

#include "tools/compare/compare.h"

namespace headroom::compare::testing {

inline ComparedRun example_run(std::string name, double perplexity, std::int64_t attention_macs = 1000) {
  ComparedRun run;
  run.name = std::move(name);
  run.attention_macs = attention_macs;
  run.attention_memory = 500;
  run.executed = {{"step_macs", 3000}};
  TrainedRun& trained = run.trained.emplace_back();
  trained.machine = "a CPU, 2 threads, fp32";
  train::TrainResult& result = trained.result;
  result.steps = run.config.train.steps = 100;
  result.tokens_per_second = 1234.0;
  result.seconds = 60.0;
  result.peak_memory_bytes = std::int64_t{300} << 20;
  result.parameters = 2695764;
  result.parameters_sha256 = "00ff";
  for (std::int64_t step = 20; step <= 100; step += 20) {
    const double excess = std::exp(-static_cast<double>(step) / 30.0);
    result.validation.push_back(
        {step, 0.6 * static_cast<double>(step), {{"loss", std::log(perplexity) + excess}, {"bits_per_byte", 1.5}}});
    tasks::complete(result.validation.back().figures, run.task().figures());
  }
  result.validation.back().figures["perplexity"] = perplexity;
  return run;
}

// The same with a seed for each perplexity.
inline ComparedRun example_seeds(const std::string& name, const std::vector<double>& perplexities,
                                 std::int64_t attention_macs = 1000) {
  ComparedRun run = example_run(name, perplexities.front(), attention_macs);
  for (std::size_t i = 1; i < perplexities.size(); ++i) {
    run.trained.push_back(example_run(name, perplexities[i]).trained.front());
    run.trained.back().seed = static_cast<std::int64_t>(i) + 1;
  }
  return run;
}

inline CompareResult example_result(std::vector<ComparedRun> runs) {
  CompareResult result;
  result.runs = std::move(runs);
  return result;
}

}  // namespace headroom::compare::testing
