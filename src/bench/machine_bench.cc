#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "headroom/kernels/cpu/tile_product.h"
#include "timing.h"

namespace headroom::bench {
namespace {

double large_product(std::int64_t n, at::TensorOptions type) {
  const at::Tensor a = at::randn({n, n}).to(type), b = at::randn({n, n}).to(type);
  at::Tensor c = a.mm(b);
  double best = 1e30;
  for (int i = 0; i < 7; ++i) {
    best = std::min(best, seconds_of([&] { at::mm_out(c, a, b); }, type.device()));
  }
  return 2.0 * static_cast<double>(n * n * n) / best * 1e-9;
}

// Every thread multiplies tiles that stay in its caches.
double tile_products() {
  constexpr std::int64_t kM = 64, kN = 256, kK = 64, kTimes = 4000;
  const int threads = at::get_num_threads();
  const at::Tensor a = at::randn({threads, kM, kK}), b = at::randn({threads, kK, kN}), c = at::zeros({threads, kM, kN});
  const auto work = [&] {
    at::parallel_for(0, threads, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) {
        for (std::int64_t i = 0; i < kTimes; ++i) {
          kernels::tile_product({kM, kN, kK, kK, kN, kN}, a.const_data_ptr<float>() + t * kM * kK,
                                b.const_data_ptr<float>() + t * kK * kN, c.mutable_data_ptr<float>() + t * kM * kN);
        }
      }
      kernels::tile_product_done();
    });
  };
  work();
  double best = 1e30;
  for (int i = 0; i < 5; ++i) {
    best = std::min(best, seconds_of(work));
  }
  return 2.0 * static_cast<double>(kM * kN * kK * kTimes * threads) / best * 1e-9;
}

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
  // Large enough to fill the device.
  const std::int64_t n = device.is_cpu() ? 1024 : 8192;
  limits.product_gflops =
      large_product(n, at::TensorOptions(device).dtype(precision == "bf16" ? at::kBFloat16 : at::kFloat));
  if (device.is_cpu() && precision != "bf16") {
    limits.product_gflops = std::max(limits.product_gflops, tile_products());
  }
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
  const at::TensorOptions device{at::Device(options.device)};
  for (const std::int64_t n : {512, 1024, 2048}) {
    const double flops = 2.0 * static_cast<double>(n * n * n);
    product(fmt::format("product {0}x{0}x{0} fp32", n), large_product(n, device.dtype(at::kFloat)), flops);
    product(fmt::format("product {0}x{0}x{0} bf16", n), large_product(n, device.dtype(at::kBFloat16)), flops);
  }
  if (device.device().is_cpu()) {
    product(fmt::format("tiles 64x256x64 fp32 ({})", kernels::tile_product_target()), tile_products(),
            2.0 * 64 * 256 * 64);
  }
  const double bandwidth = machine_limits(options).bandwidth_gb;
  rows.push_back({.name = fmt::format("reading 256 MiB ({:.1f} GB/s)", bandwidth), .seconds = 0.268435456 / bandwidth});
  return rows;
}

}  // namespace headroom::bench
