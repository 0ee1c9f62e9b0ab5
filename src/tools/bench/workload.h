// Workloads for benchmarks of whole models: training steps, decoded tokens, losses of a batch. Each model runs in a
// child process, so that several can be timed in turn and their memory measured separately.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench.h"
#include "headroom/config/model_options.h"
#include "headroom/nn/context.h"
#include "process.h"
#include "training/train/loop/train.h"
#include "training/train/step/step.h"

namespace headroom::bench {

// `precision`: "fp32" or "bf16".
nn::Context context_for(const std::string& precision, at::Device device);

struct StepShape {
  std::int64_t batch = 1;       // sequences, over all ranks
  std::int64_t accumulate = 1;  // micro-batches
  std::string precision = "fp32";
  at::Device device = at::kCPU;
};

// The trainer's step without file output, on the same random batch every time. The ranks of parallel::default_group()
// share it.
class TrainingStep {
 public:
  TrainingStep(const config::ModelOptions& options, const StepShape& shape);
  void operator()();

 private:
  std::unique_ptr<models::Model> model_;
  models::Batch batch_;
  nn::Context context_;
  config::TrainOptions options_;
  train::TrainState state_;
  std::unique_ptr<train::GradientReducer> reducer_;
};

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
  Workload begin() const;              // creates the model
  Json to_json() const;
};

// A training step of a config, with its own micro-batch. Throws UserError if the machine cannot train it.
WorkloadSpec training_spec(const std::string& config, const BenchOptions& options);

// Config changes that make a large model four layers deep, with a vocabulary small enough not to dominate its time.
std::vector<std::string> four_layers();

// Returns the command that runs this program's serve() with the workload.
std::vector<std::string> workload_command(const WorkloadSpec& spec, std::int64_t threads);

}  // namespace headroom::bench
