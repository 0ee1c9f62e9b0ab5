// A training run from top to bottom.
#include "headroom/train/train.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cmath>
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
#include "headroom/store/checkpoint.h"
#include "headroom/tasks/task.h"
#include "headroom/train/machine.h"
#include "headroom/train/product_rate.h"
#include "headroom/train/state.h"
#include "headroom/train/step.h"
#include "report.h"
#include "resume.h"
#include "samples.h"

namespace headroom::train {
namespace {

namespace fs = std::filesystem;

// Steps at the beginning of a process that do not count as its speed: caches and allocators are cold.
constexpr std::int64_t kWarmingSteps = 3;

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
      log_warning("data.validation: {} is training data too: what is measured there says nothing of unseen data", file);
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

std::unique_ptr<models::Model> model_of(const config::Config& config, const std::optional<Past>& past) {
  const at::Device device = models::resolve(config.train.device);
  return past ? store::build_model(past->checkpoint, device)
              : models::make_model(config.model, static_cast<std::uint64_t>(config.train.seed),
                                   at::TensorOptions(at::kFloat).device(device));
}

class Run {
 public:
  Run(const TrainRequest& request, config::Config config, tasks::TaskData data, const std::optional<Past>& past,
      const Speed& speed)
      : folder_(request.out),
        config_(std::move(config)),
        task_(tasks::task_for(config_, "train")),
        data_(std::move(data)),
        model_(model_of(config_, past)),
        state_(past ? from_checkpoint(past->checkpoint, *model_, past->file.string())
                    : fresh_state(model_->parameters(), config_.train.optimizer)),
        context_(models::make_context(config_.train, model_->device())),
        saved_(past ? past->file : fs::path()),
        saved_step_(past ? past->checkpoint.step : -1) {
    data_.training->seek(state_.position);
    write_text_file(folder_ / "config.toml", config::to_toml(config_, /*sources=*/true));
    log_info("{}: {} parameters, at least {} of memory; {}: {}; {} products on {}, {} thread{}", request.title,
             format_count(static_cast<double>(model_->parameters().count())),
             format_bytes(static_cast<double>(cost::step_memory(config_).total)), corpus_of(config_),
             data_.training->identity(), config::name_of(config_.train.precision), model_->device().str(),
             at::get_num_threads(), at::get_num_threads() == 1 ? "" : "s");
    warn_of_seen_data(config_.data);
    report_.emplace(Report::Place{.folder = folder_,
                                  .title = request.title,
                                  .step = state_.step,
                                  .steps = config_.train.steps,
                                  .step_gflop = speed.step_gflop,
                                  .machine_gflops = speed.machine_gflops},
                    task_.figures());
    if (config_.train.sample_every > 0) {
      const std::string& prompt = config_.train.sample_prompt;
      samples_.emplace(folder_, state_.step, prompt.empty() ? data_.validation->beginning() : prompt, writer());
    }
  }

  TrainResult finish() {
    const config::TrainOptions& options = config_.train;
    const auto due = [this](std::int64_t every) { return every > 0 && state_.step > 0 && state_.step % every == 0; };
    while (state_.step < options.steps && !interrupted()) {
      if (due(options.evaluate_every)) {
        validate();  // before the step, not after it: a run killed while it validated owes it when resumed
        if (interrupted()) {
          break;
        }
      }
      advance();
      if (due(options.sample_every)) {
        samples_->write(state_.step, writer());
      }
      if (due(options.checkpoint_every)) {
        save();
      }
    }
    save();
    if (!interrupted()) {
      validate();
      remark();
    }
    return result();
  }

 private:
  // One step, timed and logged.
  void advance() {
    const auto start = std::chrono::steady_clock::now();
    const models::Batch batch = data_.training->next();
    if (batch.starts_afresh) {
      state_.memory.forget();
    }
    const StepOutcome outcome = train_step(*model_, batch.to(model_->device()), state_, config_.train, context_);
    if (!outcome.finite()) {
      const auto figure = [](double value) {
        return std::isnan(value) ? std::string("nan") : fmt::format("{}", value);
      };
      refuse(
          fmt::format("the loss is {} and the gradient norm {}", figure(outcome.loss), figure(outcome.gradient_norm)),
          state_.step + 1);
    }
    state_.position = data_.training->position();
    count(outcome, batch.tokens, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    if (state_.step % config_.train.log_every == 0 || state_.step == config_.train.steps) {
      report_->log_interval(state_, outcome);
    }
  }

  void count(const StepOutcome& outcome, std::int64_t tokens, double seconds) {
    state_.tokens += tokens;
    state_.seconds += seconds;
    if (++steps_here_ > kWarmingSteps) {
      state_.steady_tokens += tokens;
      state_.steady_seconds += seconds;
    }
    Interval& interval = state_.interval;
    interval.steps += 1;
    interval.tokens += tokens;
    interval.seconds += seconds;
    interval.loss += outcome.loss;
    interval.regulariser += outcome.regulariser;
    report_->progress(state_, outcome);
  }

  // A resumed run finds the validation of its last step in the metrics, if it came so far.
  void validate() {
    const std::vector<ValidationPoint> before = report_->validations();
    if (!before.empty() && before.back().step == state_.step) {
      return;
    }
    report_->note(state_, "validating");
    nn::ExpertUsage usage;
    tasks::EvaluateOptions options{.batch_size = config_.train.batch_size,
                                   .batch_tokens = config_.train.batch_tokens / config_.train.accumulate,
                                   .most_tokens = config_.train.evaluate_tokens,
                                   .context = context_,
                                   .show_progress = true};
    options.context.usage = &usage;
    const tasks::Evaluation evaluation = data_.validation->evaluate(*model_, options);
    if (!evaluation.complete) {
      return;
    }
    const tasks::Figures figures = task_.figures_of(evaluation.sums);
    const tasks::FigureKind& first = task_.figures().front();
    if (const double value = tasks::figure(figures, first.name); !std::isfinite(value)) {
      refuse(fmt::format("the validation {} is {}", first.words, value), state_.step);
    }
    keep_if_best(before, figures);  // first: a run killed in between validates again
    report_->log_validation(state_, figures, usage);
    log_info("step {}: validation {}", state_.step, tasks::describe(figures, task_.figures()));
  }

  // Better than the validation that best.safetensors was kept for. Where the run went on from before that one, it was
  // none of this run's, and the file makes way.
  void keep_if_best(const std::vector<ValidationPoint>& before, const tasks::Figures& figures) const {
    if (!config_.train.keep_best) {
      return;
    }
    const fs::path file = folder_ / "checkpoints" / "best.safetensors";
    const std::optional<std::int64_t> kept = store::step_in(file);
    const auto then =
        std::find_if(before.begin(), before.end(), [&](const ValidationPoint& point) { return point.step == kept; });
    const tasks::FigureKind& kind = tasks::headline(task_.figures());
    const double now = tasks::figure(figures, kind.name);
    const double best = then == before.end() ? NAN : tasks::figure(then->figures, kind.name);
    const bool stays = kind.better == tasks::Better::higher ? best >= now : best <= now;
    if (!stays) {
      make_folder(file.parent_path());
      write_state([&](const store::Checkpoint& checkpoint) { store::save_checkpoint(checkpoint, file); });
    }
  }

  void save() {
    if (saved_step_ == state_.step) {
      return;
    }
    report_->sync();
    if (samples_) {
      samples_->sync();
    }
    write_state([&](const store::Checkpoint& checkpoint) {
      saved_ = store::write_checkpoint(checkpoint, folder_ / "checkpoints", config_.train.keep_checkpoints);
    });
    saved_step_ = state_.step;
  }

  template <class Write>
  void write_state(const Write& write) const {
    try {
      write(to_checkpoint(state_, *model_, config_, data_.tokenizer, data_.training->identity()));
    } catch (const store::NotFiniteError& error) {
      refuse(error.what(), state_.step);
    }
  }

  Samples::Writer writer() const { return {*model_, *data_.tokenizer, context_}; }

  // A model that has learnt nothing, or unlearnt it, is said to have.
  void remark() const {
    const config::ModelOptions& o = config_.model;
    const double guessing = std::log(static_cast<double>(o.has_classes() ? o.n_classes : o.vocabulary_size));
    if (const std::string said = remark_on(report_->first_loss(), report_->train_loss(), guessing); !said.empty()) {
      log_warning("{}", said);
    }
  }

  [[noreturn]] void refuse(std::string_view what, std::int64_t step) const {
    throw DivergedError(fmt::format(
        "train: {} at step {}: training stopped; the last good checkpoint is {}; try a lower train.learning_rate, "
        "more train.warmup_steps, a smaller train.clip_norm or train.precision = \"fp32\"",
        what, step, saved_.empty() ? std::string("none") : saved_.string()));
  }

  TrainResult result() const {
    const bool steady = state_.steady_seconds > 0.0;
    const auto tokens = static_cast<double>(steady ? state_.steady_tokens : state_.tokens);
    const double seconds = steady ? state_.steady_seconds : state_.seconds;
    return {.steps = state_.step,
            .train_loss = report_->train_loss(),
            .tokens_per_second = seconds > 0.0 ? tokens / seconds : 0.0,
            .seconds = state_.seconds,
            .peak_memory_bytes = peak_memory_bytes(),
            .parameters = model_->parameters().count(),
            .parameters_sha256 = parameters_sha256(model_->parameters()),
            .interrupted = interrupted(),
            .validation = report_->validations()};
  }

  fs::path folder_;
  config::Config config_;
  const tasks::Task& task_;
  tasks::TaskData data_;
  std::unique_ptr<models::Model> model_;
  TrainState state_;
  nn::Context context_;
  std::optional<Report> report_;
  std::optional<Samples> samples_;  // where train.sample_every asks for them
  fs::path saved_;                  // the last checkpoint
  std::int64_t saved_step_;         // its step, -1 before any
  std::int64_t steps_here_ = 0;     // done by this process
};

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
  Run run(request, std::move(config), std::move(data), past, speed);
  past.reset();  // the run has its own copies
  return run.finish();
}

}  // namespace headroom::train
