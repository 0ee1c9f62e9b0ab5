// Measures the machine's limits: the rates of matrix multiplication and of reading memory.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <map>

#include "engine/kernels/cpu/matmul/tile_product.h"
#include "timing.h"
#include "training/train/loop/step_time.h"

namespace headroom::bench {
namespace {

constexpr double kLongestProduct = 0.5;  // seconds

double read_bandwidth(at::Device device) {
  const at::Tensor big = at::ones({std::int64_t{1} << 26}, device);  // 256 MiB
  std::vector<double> seconds;
  for (int i = 0; i < 7; ++i) {
    seconds.push_back(seconds_of([&] { big.sum(); }, device));
  }
  return static_cast<double>(big.numel()) * 4e-9 / median(seconds);
}

}  // namespace

const Limits& machine_limits(const std::string& precision, at::Device device) {
  static std::map<std::string, Limits> known;
  const std::string name = precision + " " + device.str();
  const auto found = known.find(name);
  if (found != known.end()) {
    return found->second;
  }
  Limits limits;
  limits.product_gflops =
      train::matmul_rate(precision == "bf16" ? config::Precision::bf16 : config::Precision::fp32, device);
  limits.bandwidth_gb = read_bandwidth(device);
  return known.emplace(name, limits).first->second;
}

const Limits& machine_limits(const BenchOptions& options) {
  return machine_limits(options.precision, at::Device(options.device));
}

std::vector<Row> machine(const BenchOptions& options) {
  std::vector<Row> rows;
  const double limit = machine_limits(options).product_gflops;
  const auto product = [&](const std::string& name, double gflops, double flops) {
    rows.push_back(
        {.name = name, .seconds = flops / gflops * 1e-9, .gflops = gflops, .fraction_of_limit = gflops / limit});
  };
  const at::Device device(options.device);
  std::map<config::Precision, double> rates;
  for (const std::int64_t n : {256, 512, 1024, 2048}) {
    const double flops = 2.0 * static_cast<double>(n * n * n);
    for (const config::Precision precision : {config::Precision::fp32, config::Precision::bf16}) {
      // Some CPUs are so slow in bf16 that a large matmul takes minutes and adds nothing to the result of a small one.
      if (rates.contains(precision) && flops > kLongestProduct * rates[precision] * 1e9) {
        continue;
      }
      rates[precision] = train::large_matmul_rate(n, precision, device);
      product(fmt::format("product {0}x{0}x{0} {1}", n, config::name_of(precision)), rates[precision], flops);
    }
  }
  if (device.is_cpu()) {
    product(fmt::format("tiles 64x256x64 fp32 ({})", kernels::tile_product_target()), train::tile_matmul_rate(),
            2.0 * 64 * 256 * 64);
  }
  const double bandwidth = machine_limits(options).bandwidth_gb;
  rows.push_back({.name = fmt::format("reading 256 MiB ({:.1f} GB/s)", bandwidth), .seconds = 0.268435456 / bandwidth});
  return rows;
}

}  // namespace headroom::bench
