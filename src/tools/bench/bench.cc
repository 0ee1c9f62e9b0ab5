#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <map>

#include "bench.h"
#include "engine/kernels/cpu/matmul/tile_product.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/transformed.h"
#include "headroom/core/error.h"
#include "timing.h"
#include "training/train/loop/step_time.h"

namespace headroom::bench {
namespace {

// In the order of kBenchNames.
constexpr std::vector<Row> (*kRuns[])(const BenchOptions&) = {
    machine,  attention, layers,     expert_linear, cross_entropy, step,   switchhead,
    dcformer, ranks,     generation, evaluate,      serving,       profile};
static_assert(std::size(kRuns) == std::size(kBenchNames));

}  // namespace

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double seconds_of(const Work& work, at::Device device) {
  synchronize(device);
  const auto start = std::chrono::steady_clock::now();
  work();
  synchronize(device);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::vector<double> medians_in_turn(const std::vector<Work>& work, const BenchOptions& options) {
  const at::Device device(options.device);
  std::vector<std::vector<double>> times(work.size());
  for (std::int64_t round = -2; round < options.repeats; ++round) {  // the first two rounds are warm-up
    for (std::size_t i = 0; i < work.size(); ++i) {
      if (!work[i]) {
        continue;
      }
      const double seconds = seconds_of(work[i], device);
      if (round >= 0) {
        times[i].push_back(seconds);
      }
    }
  }
  std::vector<double> result;
  for (std::vector<double>& each : times) {
    result.push_back(each.empty() ? NAN : median(std::move(each)));
  }
  return result;
}

std::vector<Row> compare(const std::vector<Contender>& contenders, const BenchOptions& options) {
  const std::vector<double> times = medians_in_turn(transformed(contenders, &Contender::work), options);
  std::vector<Row> rows;
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    const Contender& contender = contenders[i];
    Row& row = rows.emplace_back(Row{.name = contender.name, .seconds = times[i]});
    if (!row.none_here()) {
      row.ratio_to_reference = times[contender.reference] / times[i];
      if (contender.flops > 0.0) {
        row.gflops = contender.flops / times[i] * 1e-9;
        row.fraction_of_limit = row.gflops / machine_limits(options).product_gflops;
      }
    }
  }
  return rows;
}

std::vector<Row> run(const std::string& name, const BenchOptions& options) {
  if (options.precision != "fp32" && options.precision != "bf16") {
    user_error("bench: precision must be fp32 or bf16, got '{}'", options.precision);
  }
  if (options.repeats < 1) {
    user_error("bench: repeats must be at least 1, got {}", options.repeats);
  }
  for (std::size_t i = 0; i < std::size(kBenchNames); ++i) {
    if (name == kBenchNames[i]) {
      at::set_num_threads(options.threads > 0 ? static_cast<int>(options.threads) : physical_cores());
      return kRuns[i](options);
    }
  }
  user_error("bench: {}: no such benchmark", name);
}

Json to_json(const std::vector<Row>& rows) {
  Json all = Json::array();
  for (const Row& row : rows) {
    Json json = {{"name", row.name}, {"seconds", Json()}, {"gflops", row.gflops}};
    if (!row.none_here()) {
      json["seconds"] = row.seconds;
    }
    json["ratio_to_reference"] = row.ratio_to_reference ? Json(*row.ratio_to_reference) : Json();
    json["fraction_of_limit"] = row.fraction_of_limit ? Json(*row.fraction_of_limit) : Json();
    if (row.peak_memory_bytes) {
      json["peak_memory_bytes"] = *row.peak_memory_bytes;
    }
    if (row.moved_bytes) {
      json["moved_bytes"] = *row.moved_bytes;
    }
    all.push_back(std::move(json));
  }
  return all;
}

std::string to_table(const std::vector<Row>& rows) {
  const bool moves = std::ranges::any_of(rows, [](const Row& row) { return row.moved_bytes.has_value(); });
  const auto mib = [](double bytes) { return fmt::format("{:.1f}", bytes / 1048576.0); };
  const std::size_t width = max_over(
      rows, [](const Row& row) { return row.name.size(); }, std::size_t{52});
  std::string text = fmt::format("{:<{}} {:>10} {:>9} {:>12} {:>9} {:>12}\n", "", width, "ms", "GFLOP/s", "x reference",
                                 "of limit", moves ? "MiB moved" : "peak MiB");
  for (const Row& row : rows) {
    const auto optional = [](const std::optional<double>& value, const char* format) {
      return value ? fmt::format(fmt::runtime(format), *value) : std::string("-");
    };
    text += fmt::format("{:<{}} {:>10} {:>9} {:>12} {:>9} {:>12}\n", row.name, width,
                        row.none_here() ? std::string("none here") : fmt::format("{:.2f}", row.seconds * 1e3),
                        row.gflops > 0.0 ? fmt::format("{:.1f}", row.gflops) : "-",
                        optional(row.ratio_to_reference, "{:.2f}"), optional(row.fraction_of_limit, "{:.2f}"),
                        row.moved_bytes         ? mib(*row.moved_bytes)
                        : row.peak_memory_bytes ? mib(static_cast<double>(*row.peak_memory_bytes))
                                                : std::string("-"));
  }
  return text;
}

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
