#include "step_time.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "engine/kernels/cpu/matmul/tile_product.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/text/format.h"
#include "headroom/core/error.h"
#include "headroom/models/compute.h"
#include "headroom/models/model.h"
#include "train.h"
#include "training/train/ranks/gradient_reducer.h"
#include "training/train/step/state.h"
#include "training/train/step/step.h"
#include "training/train/step/teacher.h"

namespace headroom::train {

namespace {

// Returns the highest rate of several rounds, in GFLOP/s, because other load on the machine can only lower it.
template <class Work>
double best_rate(double operations, at::Device device, const Work& work) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::duration<double> kEnough(0.02);
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
  return at::rand({n, n}).to(at::TensorOptions(device).dtype(type));
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
  constexpr std::int64_t kM = 64, kN = 256, kK = 64, kTimes = 100;
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

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

double measure_step_time(const config::Config& config, tasks::TaskData& data, double seconds, const char* what,
                         parallel::GlooGroup& group) {
  constexpr std::size_t kWarming = 2, kLeast = 3, kMost = 100;
  const at::Device device = models::resolve(config.train.device);
  const std::unique_ptr<models::Model> model = models::make_model(
      config.model, static_cast<std::uint64_t>(config.train.seed), at::TensorOptions(at::kFloat).device(device));
  const std::unique_ptr<Teacher> teacher = open_teacher(config, data.tokenizer.get(), device);
  TrainState state = initial_state(model->parameters(), config.train.optimizer, group);
  const std::unique_ptr<GradientReducer> reducer = make_gradient_reducer(*model, config.train, group);
  const nn::Context context = models::make_context(config.train, device);
  std::vector<double> steps;
  double spent = 0.0;
  bool goes_on = true;
  for (std::size_t done = 0; goes_on; ++done) {
    if (interrupted()) {
      throw InterruptedError(fmt::format("{}: interrupted while the time of a step was measured", what));
    }
    const auto begin = std::chrono::steady_clock::now();
    const models::Batch batch = data.training->next();
    if (batch.resets_memory) {
      state.memory.reset();
    }
    train_step({*model, teacher.get()}, batch.to(device), state, config.train, context, *reducer);
    const double taken = seconds_since(begin);
    spent += taken;
    if (done >= kWarming) {
      steps.push_back(taken);
    }
    goes_on = steps.size() < kLeast || (spent < seconds && done + 1 < kMost);
    if (group.size() > 1) {
      goes_on = group.gather(goes_on ? "1" : "0").front() == "1";
    }
  }
  std::ranges::sort(steps);
  const double median = steps[steps.size() / 2];
  return group.size() > 1 ? std::stod(group.gather(fmt::format("{}", median)).front()) : median;
}

double measure_step_time(const config::Config& asked, const std::filesystem::path& cache, double seconds,
                         const char* what) {
  config::Config config = asked;
  config.train.precision = models::resolve(config.train.precision, models::resolve(config.train.device));
  check_machine(config);
  tasks::TaskData data = tasks::task_for(config, what).open(config, cache);
  config = with_vocabulary_of(std::move(config), data.tokenizer.get());
  models::set_threads(config.train.threads);
  return measure_step_time(config, data, seconds, what);
}

void set_steps(config::TrainOptions& train, std::int64_t steps) {
  const double share =
      train.steps > 0 ? static_cast<double>(train.warmup_steps) / static_cast<double>(train.steps) : 0.0;
  train.steps = steps;
  train.warmup_steps = std::min<std::int64_t>(steps, std::lround(share * static_cast<double>(steps)));
}

void choose_steps(config::Config& config, tasks::TaskData& data, parallel::GlooGroup& group) {
  constexpr double kMeasuring = 0.03;  // maximum fraction of the time to spend on measuring
  config::TrainOptions& train = config.train;
  const auto start = std::chrono::steady_clock::now();
  const double step_seconds = measure_step_time(config, data, kMeasuring * train.seconds, "train", group);
  const std::string spent = group.gather(fmt::format("{}", seconds_since(start))).front();
  const double steps = std::floor((train.seconds - std::stod(spent)) / step_seconds);
  if (steps < 1.0) {
    user_error(
        "train.seconds: must be longer than it takes to measure a step and to train one, got {}; a step takes {:.3g} s",
        train.seconds, step_seconds);
  }
  set_steps(train, static_cast<std::int64_t>(std::min(steps, 1e12)));
  config.given["train.steps"] = "train.seconds";
  if (train.warmup_steps > 0) {
    config.given["train.warmup_steps"] = "train.seconds";
  }
  log_info("train.seconds: {} in {}, {:.1f} ms each", counted(train.steps, "step"), format_duration(train.seconds),
           1e3 * step_seconds);
}

}  // namespace headroom::train
