// From a request to a run and its folder; the loop is in run.cc.
#include "headroom/train/train.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/core/log.h"
#include "headroom/core/system.h"
#include "headroom/cost/cost.h"
#include "headroom/cost/memory.h"
#include "headroom/data/text.h"
#include "headroom/decode/generate.h"
#include "headroom/models/compute.h"
#include "headroom/tasks/task.h"
#include "headroom/train/machine.h"
#include "headroom/train/product_rate.h"
#include "headroom/train/state.h"
#include "resume.h"
#include "run.h"
#include "writer.h"

namespace headroom::train {
namespace {

// The request's config with everything decided that depends on the machine or on the run's past.
config::Config settle(config::Config config, const std::optional<Past>& past) {
  config::Precision& precision = config.train.precision;
  if (past && precision == config::Precision::automatic) {
    precision = past->checkpoint.config.train.precision;
  }
  precision = models::resolve(precision, models::resolve(config.train.device));
  if (past) {
    if (config.vocabulary_follows_tokenizer) {
      config.model.vocabulary_size = past->checkpoint.config.model.vocabulary_size;
    }
    check_resumable(*past, config);
    const tokenizers::Tokenizer* tokenizer = past->checkpoint.tokenizer.get();
    config.tokenizer.by_line = tokenizer != nullptr && tokenizers::encodes_by_line(*tokenizer);
  }
  return config;
}

// The training data by name and, where it is not what the recipe is for, that.
std::string corpus_of(const config::Config& config) {
  const bool its_own = config.made_for.empty() || !config.data.train.empty();
  return data::corpus_name(config.data, data::Split::train) +
         (its_own ? "" : fmt::format(", not the recipe's own data ({})", config.made_for));
}

void warn_of_seen_data(const config::DataOptions& data) {
  for (const std::string& file : data.validation) {
    if (std::find(data.train.begin(), data.train.end(), file) != data.train.end()) {
      log_warning("data.validation: {} is training data too: what is measured there says nothing about unseen data",
                  file);
      return;
    }
  }
}

// 10^9 floating-point operations of a step's products, as executed accounting counts them, and a second of the machine;
// nothing where batches differ in what they hold.
struct Speed {
  double step_gflop = 0.0, machine_gflops = 0.0;
};

Speed speed_of(const config::Config& config) {
  const config::ModelKind kind = config.model.kind;
  if (kind == config::ModelKind::encoder_decoder || kind == config::ModelKind::classifier) {
    return {};
  }
  const std::int64_t macs = cost::executed_cost(config.model, config.train.batch_size).step_macs;
  return {.step_gflop = 2e-9 * static_cast<double>(macs),
          .machine_gflops = product_rate(config.train.precision, models::resolve(config.train.device))};
}

// What the past of a run in this folder left of its history.
History history_of(const std::filesystem::path& folder, const std::optional<Past>& past,
                   const std::vector<tasks::FigureKind>& kinds) {
  History history = read_history(folder, past ? past->checkpoint.step : 0, kinds);
  history.best_step = store::step_in(best_file(folder));
  if (past) {
    history.saved_step = past->checkpoint.step;
  }
  return history;
}

// Writes the config, says what begins, and opens the run's other files.
std::unique_ptr<Writer> begin_writing(const TrainRequest& request, const Run& run, const Speed& speed) {
  const config::Config& config = run.config();
  write_text_file(request.out / "config.toml", config::to_toml(config, /*sources=*/true));
  log_info("{}: {} parameters, at least {} of memory; {}: {}; {} products on {}, {} thread{}", request.title,
           format_count(static_cast<double>(run.model().parameters().count())),
           format_bytes(static_cast<double>(cost::step_memory(config).total)), corpus_of(config),
           run.data().training->identity(), config::name_of(config.train.precision), run.model().device().str(),
           at::get_num_threads(), at::get_num_threads() == 1 ? "" : "s");
  warn_of_seen_data(config.data);
  return write_into({.folder = request.out,
                     .title = request.title,
                     .step = run.state().step,
                     .steps = config.train.steps,
                     .keep_checkpoints = config.train.keep_checkpoints,
                     .samples = config.train.sample_every > 0,
                     .step_gflop = speed.step_gflop,
                     .machine_gflops = speed.machine_gflops},
                    run.task().figures());
}

}  // namespace

TrainResult train(const TrainRequest& request) {
  config::check(request.config, "train");
  const tasks::Task& task = tasks::task_for(request.config, "train");
  const FolderLock lock(request.out);
  std::optional<Past> past = open_run(request);
  config::Config config = settle(request.config, past);
  check_machine(config);
  tasks::TaskData data = task.open(config, request.cache);
  config = with_vocabulary_of(std::move(config), data.tokenizer.get());
  if (past) {
    check_data(past->checkpoint, data.training->identity(), past->file.string());
  }
  if (config.train.sample_every > 0 && !config.train.sample_prompt.empty()) {
    decode::check_prompt(*data.tokenizer, config.train.sample_prompt, "train.sample_prompt");
  }
  models::set_threads(config.train.threads);
  const Speed speed = speed_of(config);  // before memory counts as the run's
  catch_interrupts();
  reset_peak_memory();
  Run run(std::move(config), std::move(data), past, history_of(request.out, past, task.figures()));
  past.reset();  // the run has its own copies
  const std::unique_ptr<Writer> writer = begin_writing(request, run, speed);
  return run.finish(*writer);
}

}  // namespace headroom::train
