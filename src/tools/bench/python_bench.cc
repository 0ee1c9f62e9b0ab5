// A SwitchHead layer from Python: the same layer called from C++, from headroom_torch, and in plain PyTorch code, turn
// by turn.
#include <torch/csrc/autograd/autograd.h>

#include <filesystem>

#include "headroom/core/error.h"
#include "headroom/nn/attention.h"
#include "timing.h"
#include "yardstick_process.h"

namespace headroom::bench {
namespace {

constexpr std::int64_t kTimes = 20;  // in a turn, so that asking costs nothing

struct LayerSize {
  std::int64_t batch, context_length, d_model, n_heads, d_head, n_experts, top_k;
  std::string name() const {
    return fmt::format("B{} T{} d{} H{} e{}", batch, context_length, d_model, n_heads, d_head);
  }
  Json to_json() const {
    return {{"batch", batch},   {"context_length", context_length}, {"d_model", d_model}, {"n_heads", n_heads},
            {"d_head", d_head}, {"n_experts", n_experts},           {"top_k", top_k}};
  }
};

std::vector<std::string> worker_command(const LayerSize& size, const char* layer) {
  // The package is in this program's folder.
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
  std::vector<std::string> command = python_yardstick("python", "python_layer.py");
  command.insert(command.end(), {"--package", program.parent_path().parent_path() / "python", "--layer", layer,
                                 "--size", to_json_line(size.to_json())});
  return command;
}

class LayerInCpp {
 public:
  explicit LayerInCpp(const LayerSize& size)
      : layer_(options(size), {.d_model = size.d_model, .n_layers = 4, .context_length = size.context_length},
               nn::Builder(parameters_, nn::ParameterSource(1))),
        x_(at::randn({size.batch, size.context_length, size.d_model}).requires_grad_(true)),
        grad_(at::randn_like(x_)),
        leaves_{x_} {
    for (const nn::Parameter& parameter : parameters_.all()) {
      leaves_.push_back(parameter.tensor);
    }
  }

  std::vector<double> run() const {
    std::vector<double> seconds;
    for (std::int64_t i = 0; i < kTimes; ++i) {
      seconds.push_back(seconds_of([&] {
        nn::AttentionInput input;
        input.x = x_;
        torch::autograd::grad({layer_(input, {})}, leaves_, {grad_});
      }));
    }
    return seconds;
  }

 private:
  static config::AttentionOptions options(const LayerSize& size) {
    config::AttentionOptions o;
    o.n_heads = size.n_heads;
    o.d_head = size.d_head;
    o.projection = "experts";
    o.n_experts = size.n_experts;
    o.top_k = size.top_k;
    return o;
  }

  nn::Parameters parameters_;
  nn::Attention layer_;
  at::Tensor x_, grad_;
  std::vector<at::Tensor> leaves_;
};

void rows_of(const LayerSize& size, const BenchOptions& options, std::vector<Row>& rows) {
  const LayerInCpp ours(size);
  YardstickProcess module(worker_command(size, "headroom")), plain(worker_command(size, "plain"));
  const auto ask = [](YardstickProcess& process) {
    return process.ask(fmt::format("run {}", kTimes)).get<std::vector<double>>();
  };
  std::vector<double> times[3];
  for (std::int64_t round = -1; round < options.repeats; ++round) {  // one round to warm up
    const std::vector<double> now[] = {ours.run(), ask(module), ask(plain)};
    for (std::size_t i = 0; i < 3 && round >= 0; ++i) {
      times[i].insert(times[i].end(), now[i].begin(), now[i].end());
    }
  }
  const double reference = median(times[0]);
  const char* names[] = {"C++", "Python", "plain PyTorch"};
  for (std::size_t i = 0; i < 3; ++i) {
    const double seconds = median(times[i]);
    rows.push_back({.name = fmt::format("SwitchHead layer {}: {}", size.name(), names[i]),
                    .seconds = seconds,
                    .ratio_to_reference = reference / seconds});
  }
}

}  // namespace

std::vector<Row> python(const BenchOptions& options) {
  if (options.device != "cpu" || options.precision != "fp32") {
    user_error("bench python: runs on the CPU in fp32 only");
  }
  std::vector<Row> rows;
  rows_of({.batch = 8, .context_length = 256, .d_model = 412, .n_heads = 2, .d_head = 76, .n_experts = 5, .top_k = 3},
          options, rows);
  rows_of({.batch = 1, .context_length = 256, .d_model = 128, .n_heads = 2, .d_head = 32, .n_experts = 4, .top_k = 2},
          options, rows);
  return rows;
}

}  // namespace headroom::bench
