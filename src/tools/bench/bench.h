// Benchmarks, also for programs that do not link torch. Each is measured in the same run as its baselines: the
// reference, PyTorch, the machine's limit.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/core/json.h"

namespace headroom::bench {

inline constexpr std::string_view kBenchNames[] = {
    "machine",  "attention", "layers",     "expert_linear", "cross_entropy", "step",   "switchhead",
    "dcformer", "ranks",     "generation", "evaluate",      "serving",       "profile"};

struct BenchOptions {
  std::int64_t repeats = 7;        // timed runs after the warm-up; the median is reported
  std::int64_t threads = 0;        // 0: all physical cores
  std::string precision = "fp32";  // "fp32" or "bf16"; ignored by benchmarks with a single precision
  std::string device = "cpu";      // an available torch device; memory is reported for the CPU, and by `step` for any
  // For `profile`, `generation` and `evaluate`. Empty `configs`: the configs of the benchmark.
  std::vector<std::string> configs, set;     // set: "key=value" changes of each config
  std::int64_t batch = 1;                    // generation, evaluate: sequences per batch
  std::int64_t prompt = 1024, tokens = 128;  // generation
};

struct Row {
  std::string name;
  double seconds = 0.0;                      // median; NaN: not implemented on this device
  double gflops = 0.0;                       // 10^9 floating-point operations per second (2 per MAC); 0: not counted
  std::optional<double> ratio_to_reference;  // reference's time / this time; above 1: faster than it
  std::optional<double> fraction_of_limit;   // of the machine's measured matmul rate or memory bandwidth
  std::optional<std::int64_t> peak_memory_bytes;
  std::optional<double> moved_bytes;  // lower bound: each tensor read or written counts once
  bool none_here() const { return std::isnan(seconds); }
};

// Runs one of kBenchNames. Throws UserError for an unknown name or option, and Error if a baseline
// cannot run, for example because no Python with torch is installed.
std::vector<Row> run(const std::string& name, const BenchOptions& options);

// Throws UserError if `generation` cannot generate this many tokens with one of the configs.
void check_generation(const BenchOptions& options);

// The child process of a benchmark. Runs the workload `spec` (JSON) as commands on standard input request, until
// "quit". Responds to "run N" with the seconds of N units of work, to "memory" with the peak bytes added by creating
// and running the model, and to "prompt" with the seconds of reading a prompt. Returns the exit status.
int serve(const std::string& spec);

Json to_json(const std::vector<Row>& rows);
std::string to_table(const std::vector<Row>& rows);

}  // namespace headroom::bench
