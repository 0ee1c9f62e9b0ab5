// How the benchmarks time things: warm up, repeat, take the median.
#pragma once

#include <c10/core/TensorOptions.h>

#include <functional>
#include <vector>

#include "bench.h"
#include "headroom/models/compute.h"

namespace headroom::bench {

using Work = std::function<void()>;

double median(std::vector<double> values);
// The device and the precision.
inline at::TensorOptions type_of(const BenchOptions& options) {
  return at::TensorOptions(at::Device(options.device)).dtype(options.precision == "bf16" ? at::kBFloat16 : at::kFloat);
}

using models::synchronize;
// Until the device has done it all.
double seconds_of(const Work& work, at::Device device = at::kCPU);

// Medians of several pieces of work run in turn, A B A B ..., so that a machine whose speed drifts favours none; NaN
// for one that is empty.
std::vector<double> medians_in_turn(const std::vector<Work>& work, const BenchOptions& options);

// What the device can do at most, measured once with the threads in force.
struct Limits {
  double product_gflops = 0.0;  // the best of the library's large product and many small tile products
  double bandwidth_gb = 0.0;    // 10^9 bytes read a second, median
};
const Limits& machine_limits(const std::string& precision, at::Device device);
const Limits& machine_limits(const BenchOptions& options);  // with its precision

// One benchmark each.
std::vector<Row> machine(const BenchOptions& options);
std::vector<Row> attention(const BenchOptions& options);
std::vector<Row> composition(const BenchOptions& options);
std::vector<Row> mixture(const BenchOptions& options);
std::vector<Row> linear_attention(const BenchOptions& options);
std::vector<Row> neighbours(const BenchOptions& options);
std::vector<Row> expert_linear(const BenchOptions& options);
std::vector<Row> cross_entropy(const BenchOptions& options);
std::vector<Row> adamw(const BenchOptions& options);
std::vector<Row> step(const BenchOptions& options);
std::vector<Row> switchhead(const BenchOptions& options);
std::vector<Row> switchhead_262m(const BenchOptions& options);
std::vector<Row> dcformer(const BenchOptions& options);
std::vector<Row> decoding(const BenchOptions& options);
std::vector<Row> generation(const BenchOptions& options);
std::vector<Row> evaluate(const BenchOptions& options);
std::vector<Row> serving(const BenchOptions& options);
std::vector<Row> distributed(const BenchOptions& options);
std::vector<Row> python(const BenchOptions& options);
std::vector<Row> scaling(const BenchOptions& options);
std::vector<Row> profile(const BenchOptions& options);

}  // namespace headroom::bench
