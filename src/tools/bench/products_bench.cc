// Benchmark of the float32 matrix multiplications of training steps, by each library and by this project's tiles. Its
// results determine the table in engine/ops/linear/dense_matmul.cc.
#include <ATen/record_function.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "engine/ops/linear/dense_matmul.h"
#include "headroom/core/error.h"
#include "timing.h"
#include "workload.h"

namespace headroom::bench {
namespace {

using Matmul = std::function<at::Tensor(const at::Tensor& a, const at::Tensor& b)>;
using ops::MatmulLibrary;

// Rows, inputs and outputs of dense layers, with the number of calls.
using LayerSizes = std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, std::int64_t>;
LayerSizes* layers_seen = nullptr;

// The sizes of all dense layers in a training step. The output layer is multiplied in blocks of these rows.
LayerSizes layers_of(const std::string& config, const BenchOptions& options) {
  const Workload workload = training_spec(config, options).begin();
  LayerSizes all;
  layers_seen = &all;
  const at::CallbackHandle handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback([](const at::RecordFunction& call) -> std::unique_ptr<at::ObserverContext> {
        const std::string name = call.name();
        if (name == "headroom::linear_fused" || name == "headroom::linear_cross_entropy_fused") {
          const at::Tensor &x = call.inputs()[0].toTensor(), &w = call.inputs()[1].toTensor();
          ++(*layers_seen)[{x.size(0), x.size(1), w.size(1)}];
        }
        return nullptr;
      })
          .needsInputs(true)
          .scopes({at::RecordScope::FUNCTION}));
  workload.work();
  at::removeCallback(handle);
  for (auto& [size, calls] : all) {
    calls /= 2;  // an operator is recorded twice: above and below autograd
  }
  return all;
}

constexpr std::array kPasses = {"forward", "input gradient", "weight gradient"};
constexpr std::array kWays = {"oneDNN", "torch", "tiles"};

// Returns the multiplications of one layer in one pass, in the order of kWays.
std::array<Work, 3> ways(std::size_t pass, const std::tuple<std::int64_t, std::int64_t, std::int64_t>& size) {
  const auto& [n, d_in, d_out] = size;
  const at::Tensor x = at::randn({n, d_in}), w = at::randn({d_in, d_out}), grad = at::randn({n, d_out});
  const auto by = [&](MatmulLibrary library) -> Work {
    if (pass == 2) {
      return [=] { ops::dense_matmul_transposed_by(library, x, grad); };
    }
    return [=, a = pass == 0 ? x : grad, b = pass == 0 ? w : w.t()] { ops::dense_matmul_by(library, a, b); };
  };
  return {by(MatmulLibrary::one_dnn), by(MatmulLibrary::torch), by(MatmulLibrary::tiles)};
}

}  // namespace

std::vector<Row> products(const BenchOptions& given) {
  if (given.device != "cpu") {
    user_error("bench products: --device: must be cpu, got {}", given.device);
  }
  BenchOptions options = given;
  options.precision = "fp32";
  const double limit = machine_limits(options).product_gflops;
  LayerSizes layers;
  for (const std::string& config :
       options.configs.empty() ? std::vector<std::string>{"demo/dense_h8"} : options.configs) {
    layers.merge(layers_of(config, options));
  }
  const ops::MatmulChoice& choice = ops::matmul_choice();
  std::vector<Row> rows, sums;
  for (std::size_t pass = 0; pass < kPasses.size(); ++pass) {
    const auto chosen = static_cast<std::size_t>(pass == 2 ? choice.weights : choice.rows);
    std::array<Row, kWays.size()> sum;
    for (const auto& [size, calls] : layers) {
      const auto& [n, d_in, d_out] = size;
      const std::array<Work, 3> work = ways(pass, size);
      std::vector<Contender> contenders;
      for (std::size_t i = 0; i < kWays.size(); ++i) {
        contenders.push_back({.name = fmt::format("{}x{}x{} {}x, {}: {}{}", n, d_in, d_out, calls, kPasses[pass],
                                                  kWays[i], i == chosen ? " (chosen)" : ""),
                              .work = work[i],
                              .flops = 2.0 * static_cast<double>(n * d_in * d_out),
                              .reference = chosen});
      }
      const std::vector<Row> part = compare(contenders, options);
      for (std::size_t i = 0; i < part.size(); ++i) {
        sum[i].seconds += static_cast<double>(calls) * part[i].seconds;
        sum[i].gflops += static_cast<double>(calls) * contenders[i].flops * 1e-9;  // not yet per second
      }
      rows.insert(rows.end(), part.begin(), part.end());
    }
    for (std::size_t i = 0; i < kWays.size(); ++i) {
      sum[i].name = fmt::format("all, {}: {}{}", kPasses[pass], kWays[i], i == chosen ? " (chosen)" : "");
      sum[i].gflops /= sum[i].seconds;
      sum[i].ratio_to_reference = sum[chosen].seconds / sum[i].seconds;
      sum[i].fraction_of_limit = sum[i].gflops / limit;
    }
    sums.insert(sums.end(), sum.begin(), sum.end());
  }
  rows.insert(rows.end(), sums.begin(), sums.end());
  rows.push_back(
      {.name = fmt::format(
           "the machine; chosen for {} {} AVX-512, {}", choice.vendor, choice.avx512 ? "with" : "without",
           choice.measured_on == nullptr ? "not measured" : fmt::format("measured on {}", choice.measured_on)),
       .seconds = 2.0 * 64 * 256 * 64 / limit * 1e-9,
       .gflops = limit,
       .fraction_of_limit = 1.0});
  return rows;
}

}  // namespace headroom::bench
