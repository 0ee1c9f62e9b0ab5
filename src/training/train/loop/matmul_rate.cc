#include "matmul_rate.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <tuple>

#include "engine/kernels/cpu/matmul/tile_product.h"
#include "headroom/models/compute.h"

namespace headroom::train {
namespace {

// Returns the highest rate of several rounds, in GFLOP/s, because other load on the machine can only lower it.
template <class Work>
double best_rate(double operations, at::Device device, const Work& work) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::duration<double> kEnough(0.1);
  constexpr int kFewest = 3;
  work();  // warms up
  models::synchronize(device);
  double best = 0.0;
  const Clock::time_point begin = Clock::now();
  for (int round = 0; round < kFewest || Clock::now() - begin < kEnough; ++round) {
    const Clock::time_point start = Clock::now();
    work();
    models::synchronize(device);
    best = std::max(best, operations / std::chrono::duration<double>(Clock::now() - start).count());
  }
  return best * 1e-9;
}

at::Tensor random_matrix(std::int64_t n, config::Precision precision, at::Device device) {
  const at::ScalarType type = precision == config::Precision::bf16 ? at::kBFloat16 : at::kFloat;
  return at::randn({n, n}).to(at::TensorOptions(device).dtype(type));
}

// Returns the duration of one matrix multiplication, in seconds.
double matmul_seconds(std::int64_t n, config::Precision precision, at::Device device) {
  const at::Tensor a = random_matrix(n, precision, device);
  a.mm(a);  // warms up
  models::synchronize(device);
  const auto start = std::chrono::steady_clock::now();
  a.mm(a);
  models::synchronize(device);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

std::int64_t detail::large_enough(std::int64_t largest, const std::function<double(std::int64_t)>& seconds) {
  constexpr std::int64_t kSmallest = 128;
  constexpr double kLongEnough = 0.005;
  std::int64_t n = kSmallest;
  while (n < largest && seconds(n) < kLongEnough) {
    n *= 2;
  }
  return n;
}

double large_matmul_rate(std::int64_t n, config::Precision precision, at::Device device) {
  const at::Tensor a = random_matrix(n, precision, device), b = random_matrix(n, precision, device);
  at::Tensor c = at::empty_like(a);
  return best_rate(2.0 * static_cast<double>(n * n * n), device, [&] { at::mm_out(c, a, b); });
}

double tile_matmul_rate() {
  constexpr std::int64_t kM = 64, kN = 256, kK = 64, kTimes = 500;
  const int threads = at::get_num_threads();
  const at::Tensor a = at::randn({threads, kM, kK}), b = at::randn({threads, kK, kN}), c = at::zeros({threads, kM, kN});
  return best_rate(2.0 * static_cast<double>(kM * kN * kK * kTimes * threads), at::kCPU, [&] {
    at::parallel_for(0, threads, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) {
        for (std::int64_t i = 0; i < kTimes; ++i) {
          kernels::tile_product({kM, kN, kK, kK, kN, kN}, a.const_data_ptr<float>() + t * kM * kK,
                                b.const_data_ptr<float>() + t * kK * kN, c.mutable_data_ptr<float>() + t * kM * kN);
        }
      }
      kernels::tile_product_done();
    });
  });
}

double matmul_rate(config::Precision precision, at::Device device) {
  static std::map<std::tuple<config::Precision, std::string, int>, double> known;
  precision = models::resolve(precision, device);
  const auto [entry, unknown] = known.try_emplace({precision, device.str(), at::get_num_threads()});
  if (unknown) {
    constexpr std::int64_t kOfCpus = 1024, kOfGpus = 8192;
    const std::int64_t n = detail::large_enough(device.is_cpu() ? kOfCpus : kOfGpus, [&](std::int64_t size) {
      return matmul_seconds(size, precision, device);
    });
    entry->second = large_matmul_rate(n, precision, device);
    if (device.is_cpu() && precision == config::Precision::fp32) {
      entry->second = std::max(entry->second, tile_matmul_rate());
    }
  }
  return entry->second;
}

}  // namespace headroom::train
