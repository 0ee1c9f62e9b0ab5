#include "measure.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

#include "foundation/core/machine/system.h"
#include "headroom/core/error.h"
#include "headroom/models/compute.h"
#include "headroom/models/model.h"
#include "training/tasks/task.h"
#include "training/train/loop/machine.h"
#include "training/train/step/state.h"
#include "training/train/step/step.h"

namespace headroom::compare {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Measured measure_steps(const config::Config& asked, const std::filesystem::path& cache, double seconds) {
  constexpr std::size_t kWarming = 2, kLeast = 3, kMost = 100;
  config::Config config = asked;
  const at::Device device = models::resolve(config.train.device);
  config.train.precision = models::resolve(config.train.precision, device);
  train::check_machine(config);
  const auto start = std::chrono::steady_clock::now();
  tasks::TaskData data = tasks::task_for(config, "advise").open(config, cache);
  config = train::with_vocabulary_of(std::move(config), data.tokenizer.get());
  models::set_threads(config.train.threads);
  const std::unique_ptr<models::Model> model = models::make_model(
      config.model, static_cast<std::uint64_t>(config.train.seed), at::TensorOptions(at::kFloat).device(device));
  train::TrainState state = train::initial_state(model->parameters(), config.train.optimizer);
  const nn::Context context = models::make_context(config.train, device);
  Measured measured{.start_seconds = seconds_since(start)};
  std::vector<double> steps;
  double spent = 0.0;
  for (std::size_t done = 0; done < kWarming + kLeast || (spent < seconds && done < kMost); ++done) {
    if (interrupted()) {
      throw InterruptedError("advise: interrupted: the same command goes on from here");
    }
    const auto begin = std::chrono::steady_clock::now();
    const models::Batch batch = data.training->next();
    if (batch.starts_afresh) {
      state.memory.forget();
    }
    train::train_step(*model, batch.to(device), state, config.train, context);
    const double taken = seconds_since(begin);
    spent += taken;
    if (done >= kWarming) {
      steps.push_back(taken);
    }
  }
  std::sort(steps.begin(), steps.end());
  measured.step_seconds = steps[steps.size() / 4];
  return measured;
}

}  // namespace headroom::compare
