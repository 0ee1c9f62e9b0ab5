// Workloads for benchmarks of whole models: training steps, decoded tokens, losses of a batch. Each model runs in a
// child process, so that several can be timed in turn and their memory measured separately.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench.h"
#include "headroom/config/model_options.h"
#include "headroom/core/json.h"
#include "headroom/nn/context.h"
#include "training/parallel/gloo_group.h"

namespace headroom::bench {

// `precision`: "fp32" or "bf16".
nn::Context context_for(const std::string& precision, at::Device device);

struct Workload {
  std::function<void()> work;    // one training step, one token, or the loss of one batch
  std::function<void()> prompt;  // decoding: starts new sequences by reading their prompts; else empty
};

struct WorkloadSpec {
  std::string recipe;            // or a path
  std::vector<std::string> set;  // config changes, "key=value"
  std::string work = "step";     // "step", "decode" (tokens one by one) or "forward" (losses)
  std::int64_t batch = 1;
  std::string precision = "fp32", device = "cpu";
  std::int64_t accumulate = 1;  // micro-batches per training step
  std::int64_t prompt = 0;      // decode: tokens of the prompt; 0: 64, or half of the context if that is less

  config::ModelOptions model() const;  // throws UserError
  // Creates the model. A step is the trainer's without file output, on the same random batch every time, which the
  // ranks of parallel::default_group() share.
  Workload begin(const config::ModelOptions& model) const;
};

// A training step of a config, with its own micro-batch. Throws UserError if the machine cannot train it.
WorkloadSpec training_spec(const std::string& config, const BenchOptions& options);

// Config changes that make a large model four layers deep, with a vocabulary small enough not to dominate its time.
std::vector<std::string> four_layers();

// Returns the command that runs this program's serve() with the workload.
std::vector<std::string> workload_command(const WorkloadSpec& spec, std::int64_t threads);

// Child processes for timed work, which respond to each line of input with one line of JSON.

// Returns the command that runs a script of bench/ with the Python that has torch, the current number of threads, the
// model's size and more options. Throws Error naming the benchmark if there is no such Python.
std::vector<std::string> python_baseline(const std::string& benchmark, const std::string& script, const Json& size,
                                         const std::vector<std::string>& more);

class BenchProcess {
 public:
  using Environment = std::vector<std::pair<std::string, std::string>>;
  // Throws Error if the program cannot be started. `environment` is added to this process's environment.
  explicit BenchProcess(const std::vector<std::string>& command, const Environment& environment = {});
  ~BenchProcess();  // sends "quit" and waits
  BenchProcess(const BenchProcess&) = delete;
  BenchProcess& operator=(const BenchProcess&) = delete;

  Json ask(const std::string& line);  // send() and answer()
  void send(const std::string& line);
  Json answer();  // throws Error if the program has exited or its answer is not JSON

 private:
  std::string name_, asked_;
  int pid_ = -1, to_ = -1, from_ = -1;
};

// Starts the program and runs one unit of work. If that fails, the baseline is not installed: returns null and logs
// `missing` as a warning.
std::unique_ptr<BenchProcess> start_if_available(const std::vector<std::string>& command, const std::string& missing);

// The ranks of a distributed program, which work simultaneously.
class BenchRanks {
 public:
  BenchRanks(const std::vector<std::string>& command, int ranks);
  ~BenchRanks();  // signals all ranks to quit before waiting for any, because they exit together
  BenchRanks(const BenchRanks&) = delete;
  BenchRanks& operator=(const BenchRanks&) = delete;

  void run();             // runs one unit of work
  std::int64_t memory();  // peak bytes of the rank that uses most

 private:
  std::vector<Json> ask(const std::string& line);

  parallel::Rendezvous rendezvous_;
  std::vector<std::unique_ptr<BenchProcess>> processes_;
};

}  // namespace headroom::bench
