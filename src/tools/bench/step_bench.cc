// Benchmarks of training steps against PyTorch: one process, with models of four sizes, against eager and compiled
// PyTorch, and several ranks with one thread each against PyTorch's DistributedDataParallel.
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "foundation/core/machine/system.h"
#include "headroom/config/config.h"
#include "headroom/models/compute.h"
#include "timing.h"
#include "training/cost/cost.h"
#include "workload.h"

namespace headroom::bench {
namespace {

// The shape of a dense model's training step.
struct StepSize {
  std::int64_t layers, heads, d_model, tokens, batch, vocabulary;
  std::string name() const { return fmt::format("L{} d{} T{} B{} V{}", layers, d_model, tokens, batch, vocabulary); }
};

constexpr StepSize kSteps[] = {{4, 8, 512, 256, 8, 8000},
                               {4, 8, 192, 128, 16, 2000},     // the demo's size
                               {4, 4, 128, 64, 12, 2000},      // nanoGPT's size for CPUs
                               {12, 12, 768, 64, 4, 50257}};   // GPT-2 124M, as llm.c's example trains it
constexpr StepSize kGpuStep = {12, 12, 768, 1024, 16, 50257};  // GPT-2 124M with batches that fill a GPU

// Returns a step of this size with a model that PyTorch's script can also build.
WorkloadSpec spec_of(const StepSize& size, const BenchOptions& options, std::int64_t accumulate = 1) {
  const auto key = [](const char* name, std::int64_t value) { return fmt::format("{}={}", name, value); };
  return {.recipe = "demo/dense_h8",
          .set = {key("model.vocabulary_size", size.vocabulary), key("tokenizer.vocabulary_size", size.vocabulary),
                  key("model.n_layers", size.layers), key("model.d_model", size.d_model),
                  key("model.context_length", size.tokens), "model.memory_length=0", "model.dropout=0",
                  "model.tied_embeddings=true", "model.head_bias=false", key("model.attention.n_heads", size.heads),
                  key("model.attention.d_head", size.d_model / size.heads), "model.attention.scale=inv_sqrt",
                  "model.attention.position=learned", "model.attention.position_bias=false",
                  key("model.mlp.d_hidden", 4 * size.d_model), "model.mlp.activation=gelu"},
          .batch = size.batch,
          .precision = options.precision,
          .device = options.device,
          .accumulate = accumulate};
}

std::vector<std::string> pytorch_command(const char* benchmark, const StepSize& size,
                                         const std::vector<std::string>& more) {
  return python_baseline(benchmark, "pytorch_step.py",
                         {{"vocabulary_size", size.vocabulary},
                          {"n_layers", size.layers},
                          {"n_heads", size.heads},
                          {"d_model", size.d_model},
                          {"context_length", size.tokens},
                          {"batch", size.batch}},
                         more);
}

// Returns one row each for PyTorch, eager and compiled, and for Headroom. The reference is PyTorch's faster row.
std::vector<Row> step_of(const StepSize& size, const BenchOptions& options) {
  std::vector<std::string> more = {"--precision", options.precision, "--device", options.device};
  BenchProcess eager(pytorch_command("step", size, more));
  more.emplace_back("--compile");
  // Needs a C++ compiler and Python headers.
  const std::unique_ptr<BenchProcess> compiled = start_if_available(
      pytorch_command("step", size, more), "step: torch.compile does not work on this machine; left out");

  const at::Device device(options.device);
  models::reset_peak_memory(device);
  const std::int64_t before = device.is_cpu() ? resident_memory_bytes() : 0;
  const WorkloadSpec spec = spec_of(size, options);
  const config::ModelOptions o = spec.model();
  const Workload ours = spec.begin(o);
  const double flops = 2.0 * static_cast<double>(cost::executed_cost(o, size.batch).step_macs);
  std::vector<Contender> contenders;
  std::vector<std::function<std::int64_t()>> memory;
  const auto add = [&](const char* who, Work work, std::function<std::int64_t()> bytes) {
    contenders.push_back({.name = fmt::format("{} {}: {}", size.name(), options.precision, who),
                          .work = std::move(work),
                          .flops = flops});
    memory.push_back(std::move(bytes));
  };
  const auto add_pytorch = [&](const char* who, BenchProcess& process) {
    add(
        who, [&process] { process.ask("run 1"); }, [&process] { return process.ask("memory").get<std::int64_t>(); });
  };
  add_pytorch("PyTorch eager", eager);
  if (compiled) {
    add_pytorch("PyTorch compiled", *compiled);
  }
  const std::size_t theirs = contenders.size();
  add("headroom", ours.work, [&] { return models::peak_memory_bytes(device) - before; });
  std::vector<Row> rows = compare(contenders, options);
  double best = rows.front().seconds;
  for (std::size_t i = 0; i < theirs; ++i) {
    best = std::min(best, rows[i].seconds);
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].ratio_to_reference = best / rows[i].seconds;
    rows[i].peak_memory_bytes = memory[i]();
  }
  return rows;
}

}  // namespace

std::vector<Row> step(const BenchOptions& options) {
  machine_limits(options);  // measured before the models allocate memory
  std::vector<StepSize> sizes(std::begin(kSteps), std::end(kSteps));
  if (!at::Device(options.device).is_cpu()) {
    sizes.push_back(kGpuStep);
  }
  std::vector<Row> rows;
  for (const StepSize& size : sizes) {
    const std::vector<Row> part = step_of(size, options);
    rows.insert(rows.end(), part.begin(), part.end());
  }
  return rows;
}

namespace {

struct RanksCase {
  std::string name;
  std::vector<std::string> command;
  int ranks = 1;
  double flops = 0.0;         // of a step
  std::size_t reference = 0;  // index of the case to compare with
};

// Returns the model of `bench step` with more layers.
constexpr StepSize kPlain = {12, 8, 512, 256, 8, 8000}, kHalfPlain = {12, 8, 512, 256, 4, 8000};

double flops_of(const WorkloadSpec& spec) {
  return 2.0 * static_cast<double>(cost::executed_cost(spec.model(), spec.batch).step_macs);
}

std::vector<RanksCase> ranks_cases(const BenchOptions& options) {
  const std::int64_t threads = at::get_num_threads();
  const auto spec = [&](const std::string& recipe, std::int64_t batch, std::int64_t accumulate) {
    return WorkloadSpec{.recipe = recipe, .batch = batch, .precision = options.precision, .accumulate = accumulate};
  };
  // The cases: one process with all threads, one process with one thread, and two processes with one thread each.
  const auto all = [&](const WorkloadSpec& one) { return workload_command(one, threads); };
  const auto single = [&](const WorkloadSpec& one) { return workload_command(one, 1); };
  const WorkloadSpec dense = spec("switchhead/wt103_47m_dense_h10", 8, 2),
                     switchhead = spec("switchhead/wt103_47m", 8, 2);
  const WorkloadSpec four = spec(dense.recipe, 4, 4), eight = spec(dense.recipe, 8, 8);
  const WorkloadSpec plain = spec_of(kPlain, options, 2), half = spec_of(kHalfPlain, options);
  // PyTorch's DistributedDataParallel, with half of the sequences on each rank.
  const std::vector<std::string> ddp =
      pytorch_command("ranks", kHalfPlain, {"--threads", "1", "--precision", options.precision});
  return {
      {fmt::format("dense 47M B8 K2: 1 process, {} threads", threads), all(dense), 1, flops_of(dense), 0},
      {"dense 47M B8 K2: 2 processes", single(dense), 2, flops_of(dense), 0},
      {fmt::format("SwitchHead 47M B8 K2: 1 process, {} threads", threads), all(switchhead), 1, flops_of(switchhead),
       2},
      {"SwitchHead 47M B8 K2: 2 processes", single(switchhead), 2, flops_of(switchhead), 2},
      {"dense 47M B4 K4: 1 process, 1 thread", single(four), 1, flops_of(four), 4},
      {"dense 47M B8 K8: 2 processes", single(eight), 2, flops_of(eight), 4},
      {"plain 42M B4 K1: 1 process, 1 thread", single(half), 1, flops_of(half), 6},
      {"plain 42M B8 K2: 2 processes", single(plain), 2, flops_of(plain), 6},
      {"plain 42M B4: PyTorch, 1 process, 1 thread", ddp, 1, flops_of(half), 8},
      {"plain 42M B8: PyTorch DDP, 2 processes", ddp, 2, flops_of(plain), 8},
  };
}

}  // namespace

std::vector<Row> ranks(const BenchOptions& options) {
  const std::vector<RanksCase> all = ranks_cases(options);
  std::vector<std::unique_ptr<BenchRanks>> programs;
  std::vector<Work> work;
  for (const RanksCase& one : all) {
    BenchRanks* started = programs.emplace_back(new BenchRanks(one.command, one.ranks)).get();
    work.emplace_back([started] { started->run(); });
  }
  const std::vector<double> times = medians_in_turn(work, options);
  std::vector<Row> rows;
  for (std::size_t i = 0; i < all.size(); ++i) {
    rows.push_back({.name = all[i].name,
                    .seconds = times[i],
                    .gflops = all[i].flops / times[i] * 1e-9,
                    .ratio_to_reference = times[all[i].reference] / times[i],
                    .peak_memory_bytes = programs[i]->memory()});
  }
  return rows;
}

}  // namespace headroom::bench
