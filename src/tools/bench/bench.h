// Benchmarks, each against its yardsticks in the same run: the reference, PyTorch, the machine's own limit.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headroom/core/json.h"

namespace headroom::bench {

struct BenchOptions {
  std::int64_t repeats = 7;        // timed runs, after warming up; the median counts
  std::int64_t threads = 0;        // 0: all physical cores
  std::string precision = "fp32";  // fp32 | bf16, where a benchmark has both
  std::string device = "cpu";      // torch's name of one that is there; memory is reported for the CPU only
  std::string plots;               // a folder for drawings; empty: none
  // Of `profile`, `generation` and `evaluate`: which models; empty: some of the papers.
  std::vector<std::string> configs;
  std::int64_t batch = 1;                    // generation, evaluate: sequences side by side
  std::int64_t prompt = 1024, tokens = 128;  // generation
};

struct Row {
  std::string name;
  double seconds = 0.0;                      // median; NaN: there is no such implementation here
  double gflops = 0.0;                       // 10^9 floating-point operations a second (2 a MAC); 0: not counted
  std::optional<double> ratio_to_reference;  // reference's time / this time; above 1 is faster
  std::optional<double> fraction_of_limit;   // of the machine's measured product rate or memory bandwidth
  std::optional<std::int64_t> peak_memory_bytes;
  std::optional<double> moved_bytes;  // at least: what is read and written, each once
  bool none_here() const { return std::isnan(seconds); }
};

// The names that run() knows, with a line of explanation each.
std::vector<std::pair<std::string, std::string>> names();

// Throws UserError for an unknown name, Error where a yardstick cannot run (PyTorch's
// Python is missing).
std::vector<Row> run(const std::string& name, const BenchOptions& options);

// Throws UserError where `generation` cannot write so many tokens with one of the configs.
void check_generation(const BenchOptions& options);

// This process serves another's benchmark: answers questions on standard input until "quit". Returns the exit
// status.
int serve(const std::string& spec);

Json to_json(const std::vector<Row>& rows);
std::string to_table(const std::vector<Row>& rows);

}  // namespace headroom::bench
