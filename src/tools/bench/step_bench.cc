// A whole training step of a dense model: ours and PyTorch's, eager and compiled, turn by turn.
#include "foundation/core/machine/system.h"
#include "headroom/config/config.h"
#include "timing.h"
#include "training/cost/cost.h"
#include "training_step.h"
#include "yardstick_process.h"

namespace headroom::bench {
namespace {

constexpr std::int64_t kBatch = 8;

config::ModelOptions model_options() {
  config::ModelOptions o;
  o.vocabulary_size = 8000;
  o.n_layers = 4;
  o.d_model = 512;
  o.context_length = 256;
  o.tied_embeddings = true;
  o.head_bias = false;
  o.attention.n_heads = 8;
  o.attention.d_head = 64;
  o.attention.position = "learned";
  o.mlp.d_hidden = 2048;
  o.mlp.activation = config::Activation::gelu;
  return o;
}

std::vector<std::string> pytorch_command(const config::ModelOptions& o, const BenchOptions& options, bool compiled) {
  const Json size = {{"vocabulary_size", o.vocabulary_size}, {"n_layers", o.n_layers},
                     {"n_heads", o.attention.n_heads},       {"d_model", o.d_model},
                     {"context_length", o.context_length},   {"batch", kBatch}};
  std::vector<std::string> command = python_yardstick("step", "pytorch_step.py");
  command.insert(command.end(),
                 {"--precision", options.precision, "--device", options.device, "--size", to_json_line(size)});
  if (compiled) {
    command.emplace_back("--compile");
  }
  return command;
}

// torch.compile needs a C++ compiler and Python's headers; without them the eager step alone is the yardstick.
std::unique_ptr<YardstickProcess> compiled_pytorch(const config::ModelOptions& o, const BenchOptions& options) {
  return start_if_there(pytorch_command(o, options, true), "step: torch.compile does not work here; left out");
}

}  // namespace

std::vector<Row> step(const BenchOptions& options) {
  const config::ModelOptions o = model_options();
  const double limit = machine_limits(options).product_gflops;
  YardstickProcess eager(pytorch_command(o, options, false));
  const std::unique_ptr<YardstickProcess> compiled = compiled_pytorch(o, options);

  reset_peak_memory();
  const std::int64_t before = resident_memory_bytes();
  const at::Device device(options.device);
  TrainingStep ours(o, {.batch = kBatch, .precision = options.precision, .device = device});
  std::vector<Work> work = {[&] { eager.ask("run 1"); }, [&] { ours(); }};
  if (compiled) {
    work.emplace_back([&] { compiled->ask("run 1"); });
  }
  const std::vector<double> times = medians_in_turn(work, options);
  const std::int64_t our_memory = peak_memory_bytes() - before;

  const double flops = 2.0 * static_cast<double>(cost::executed_cost(o, kBatch).step_macs);
  std::vector<Row> rows;
  const auto add = [&](const std::string& who, double seconds, std::int64_t memory) {
    rows.push_back({.name = fmt::format("dense step {}: {}", options.precision, who),
                    .seconds = seconds,
                    .gflops = flops / seconds * 1e-9,
                    .ratio_to_reference = times[0] / seconds,
                    .fraction_of_limit = flops / seconds * 1e-9 / limit,
                    .peak_memory_bytes = device.is_cpu() ? std::optional(memory) : std::nullopt});
  };
  add("PyTorch eager + SDPA", times[0], eager.ask("memory").get<std::int64_t>());
  if (compiled) {
    add("PyTorch compiled", times[2], compiled->ask("memory").get<std::int64_t>());
  }
  add("headroom", times[1], our_memory);
  return rows;
}

}  // namespace headroom::bench
