// A whole training step of a dense model: ours and PyTorch's, turn by turn.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cstdlib>
#include <filesystem>

#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "headroom/core/system.h"
#include "headroom/cost/cost.h"
#include "headroom/models/language_model.h"
#include "headroom/ops/adamw.h"
#include "timing.h"
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
  o.attention.position = config::Position::learned;
  o.mlp.d_hidden = 2048;
  o.mlp.activation = config::Activation::gelu;
  return o;
}

// The trainer's step without its files: loss, gradients, clipping, AdamW.
class OurStep {
 public:
  OurStep(const config::ModelOptions& options, const std::string& precision)
      : model_(options, 1),
        tokens_(at::randint(options.vocabulary_size, {kBatch, options.context_length + 1}, at::kLong)) {
    context_.training = true;
    if (precision == "bf16") {
      context_.compute_dtype = at::kBFloat16;
    }
    for (const nn::Parameter& p : model_.parameters().all()) {
      parameters_.push_back(p.tensor);
      m_.push_back(at::zeros_like(p.tensor));
      v_.push_back(at::zeros_like(p.tensor));
    }
  }

  void operator()() {
    models::Memory memory;
    model_.loss(tokens_, memory, context_).total().backward();
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& p : parameters_) {
      gradients.push_back(p.grad());
    }
    const double norm = ops::global_norm(gradients);
    const at::NoGradGuard no_grad;
    ops::adamw_step(parameters_, gradients, m_, v_, ++step_, {.learning_rate = 1e-4}, std::min(1.0, 0.25 / norm));
    model_.parameters().zero_grad();
  }

 private:
  models::LanguageModel model_;
  at::Tensor tokens_;
  nn::Context context_;
  std::vector<at::Tensor> parameters_, m_, v_;
  std::int64_t step_ = 0;
};

std::vector<std::string> pytorch_command(const config::ModelOptions& o, const BenchOptions& options) {
  const std::string home = home_folder();
  const char* chosen = std::getenv("HEADROOM_PYTHON");
  const std::string python = chosen != nullptr ? chosen : home + "/.env/bin/python3";
  if (!std::filesystem::exists(python)) {
    fail("bench step: {}: no Python with torch there; './run.sh setup' makes one, or set HEADROOM_PYTHON", python);
  }
  const Json size = {{"vocabulary_size", o.vocabulary_size}, {"n_layers", o.n_layers},
                     {"n_heads", o.attention.n_heads},       {"d_model", o.d_model},
                     {"context_length", o.context_length},   {"batch", kBatch}};
  return {python,        home + "/bench/pytorch_step.py",
          "--threads",   std::to_string(at::get_num_threads()),
          "--precision", options.precision,
          "--size",      to_json_line(size)};
}

}  // namespace

std::vector<Row> step(const BenchOptions& options) {
  const config::ModelOptions o = model_options();
  const double limit = machine_limits(options.precision).product_gflops;
  YardstickProcess pytorch(pytorch_command(o, options));
  pytorch.ask("run 2");

  reset_peak_memory();
  const std::int64_t before = resident_memory_bytes();
  OurStep ours(o, options.precision);
  for (int i = 0; i < 2; ++i) {
    ours();
  }
  std::vector<double> our_seconds, their_seconds;
  for (std::int64_t round = 0; round < options.repeats; ++round) {
    our_seconds.push_back(seconds_of([&] { ours(); }));
    their_seconds.push_back(pytorch.ask("run 1").at(0).get<double>());
  }
  const double flops = 2.0 * static_cast<double>(cost::executed_cost(o, kBatch).step_macs);
  const double us = median(our_seconds), them = median(their_seconds);
  const auto row = [&](std::string name, double seconds, std::int64_t memory) {
    return Row{.name = std::move(name),
               .seconds = seconds,
               .gflops = flops / seconds * 1e-9,
               .ratio_to_reference = them / seconds,
               .fraction_of_limit = flops / seconds * 1e-9 / limit,
               .peak_memory_bytes = memory};
  };
  return {row(fmt::format("dense step {}: PyTorch eager + SDPA", options.precision), them,
              pytorch.ask("memory").get<std::int64_t>()),
          row(fmt::format("dense step {}: headroom", options.precision), us, peak_memory_bytes() - before)};
}

}  // namespace headroom::bench
