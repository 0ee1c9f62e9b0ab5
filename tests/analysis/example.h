// A comparison that never ran, for what only shows comparisons.
#pragma once

#include <cmath>
#include <string>

#include "headroom/analysis/compare.h"

namespace headroom::analysis::testing {

inline ComparedRun example_run(std::string name, double perplexity, std::int64_t attention_macs = 1000) {
  ComparedRun run;
  run.name = std::move(name);
  run.attention_macs = attention_macs;
  run.attention_memory = 500;
  run.executed = {{"step_macs", 3000}};
  run.machine = "a CPU, 2 threads, fp32";
  run.result.steps = 100;
  run.result.tokens_per_second = 1234.0;
  run.result.seconds = 60.0;
  run.result.peak_memory_bytes = std::int64_t{300} << 20;
  run.result.parameters = 2695764;
  run.result.parameters_sha256 = "00ff";
  for (std::int64_t step = 20; step <= 100; step += 20) {
    const double excess = std::exp(-static_cast<double>(step) / 30.0);
    run.result.validation.push_back(
        {step, 0.6 * static_cast<double>(step), {{"loss", std::log(perplexity) + excess}, {"bits_per_byte", 1.5}}});
    run.task().complete(run.result.validation.back().figures);
  }
  run.result.validation.back().figures["perplexity"] = perplexity;
  return run;
}

}  // namespace headroom::analysis::testing
