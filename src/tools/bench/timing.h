// The harness shared by all benchmarks: timing, the machine's limits, and the list of benchmarks.
#pragma once

#include <ATen/record_function.h>
#include <c10/core/TensorOptions.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "bench.h"
#include "headroom/models/compute.h"

namespace headroom::bench {

using Work = std::function<void()>;

double median(std::vector<double> values);
// Returns the device and precision of the options.
inline at::TensorOptions type_of(const BenchOptions& options) {
  return at::TensorOptions(at::Device(options.device)).dtype(options.precision == "bf16" ? at::kBFloat16 : at::kFloat);
}

using models::synchronize;
// Runs `work` and returns its seconds, including the wait for the device.
double seconds_of(const Work& work, at::Device device = at::kCPU);

// Returns the medians of several workloads that run in turn, A B A B ..., so that drift in the machine's speed affects
// all equally. NaN for an empty one.
std::vector<double> medians_in_turn(const std::vector<Work>& work, const BenchOptions& options);

// One of several workloads that are compared with each other.
struct Contender {
  std::string name;
  Work work;                  // may be empty
  double flops = 0.0;         // matmul operations of the work; 0: not counted
  std::size_t reference = 0;  // index of the contender to compare with
};

// Times the contenders in turn and returns one row each; the row of an empty contender has no time.
std::vector<Row> compare(const std::vector<Contender>& contenders, const BenchOptions& options);

// The device's limits, measured once with the current number of threads.
struct Limits {
  double product_gflops = 0.0;  // the better of one large library matmul and many small tile matmuls
  double bandwidth_gb = 0.0;    // 10^9 bytes read per second, median
};
const Limits& machine_limits(const std::string& precision, at::Device device);
const Limits& machine_limits(const BenchOptions& options);  // with its precision

// The benchmarks.
std::vector<Row> machine(const BenchOptions& options);
std::vector<Row> attention(const BenchOptions& options);
std::vector<Row> layers(const BenchOptions& options);
std::vector<Row> expert_linear(const BenchOptions& options);
std::vector<Row> cross_entropy(const BenchOptions& options);
std::vector<Row> step(const BenchOptions& options);
std::vector<Row> switchhead(const BenchOptions& options);
std::vector<Row> dcformer(const BenchOptions& options);
std::vector<Row> generation(const BenchOptions& options);
std::vector<Row> evaluate(const BenchOptions& options);
std::vector<Row> serving(const BenchOptions& options);
std::vector<Row> ranks(const BenchOptions& options);
std::vector<Row> profile(const BenchOptions& options);

// The minimum work of an operator call: memory traffic and multiply-accumulates.

struct Demand {
  double bytes = 0.0;  // each tensor read or written counts once
  double flops = 0.0;  // of matrix multiplications, 2 per multiply-accumulate; 0 for other operators
  Demand& operator+=(const Demand& other);
  Demand& operator-=(const Demand& other);
};

// Measures a call: created in the operator's start callback with the inputs and finished in its end callback with the
// outputs, so the callbacks must request both. Views move no bytes.
class Call {
 public:
  explicit Call(const at::RecordFunction& begun);
  Demand end(const at::RecordFunction& ended) const;

 private:
  bool in_place_ = false;
  std::vector<const void*> storages_;
  double read_ = 0.0, first_ = 0.0, flops_ = 0.0;  // read_: bytes of all inputs; first_: bytes of the first
};

}  // namespace headroom::bench
