// A training run from top to bottom.
#include "headroom/train/train.h"

#include <ATen/Parallel.h>

#include <chrono>
#include <cmath>
#include <optional>
#include <utility>

#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/core/log.h"
#include "headroom/core/system.h"
#include "headroom/data/batches.h"
#include "headroom/eval/checkpoint.h"
#include "headroom/eval/evaluate.h"
#include "headroom/models/language_model.h"
#include "headroom/train/precision.h"
#include "report.h"
#include "resume.h"
#include "state.h"
#include "step.h"

namespace headroom::train {
namespace {

namespace fs = std::filesystem;

// Steps at the beginning of a process that do not count as its speed: caches and allocators are cold.
constexpr std::int64_t kWarmingSteps = 3;

// The tokens of a run and the tokenizer that made them.
struct Corpus {
  std::shared_ptr<const data::Tokenizer> tokenizer;
  std::shared_ptr<const data::TokenFile> train, validation;
  std::string identity;
};

Corpus open_corpus(const config::Config& config, const fs::path& cache) {
  const data::PreparedData prepared = data::prepare_data(config.data, config.tokenizer, cache);
  Corpus corpus{.tokenizer = prepared.tokenizer,
                .train = std::make_shared<const data::TokenFile>(prepared.train),
                .validation = std::make_shared<const data::TokenFile>(prepared.validation),
                .identity = {}};
  for (const data::TokenFile* file : {corpus.train.get(), corpus.validation.get()}) {
    if (file->tokenizer_name() != corpus.tokenizer->name()) {
      misuse("{}: was made with tokenizer {}, but the run's is {}", file->path().string(), file->tokenizer_name(),
             corpus.tokenizer->name());
    }
  }
  if (corpus.tokenizer->vocabulary_size() != config.model.vocabulary_size) {
    misuse("model.vocabulary_size: must be {}, the size of tokenizer {}, got {}", corpus.tokenizer->vocabulary_size(),
           corpus.tokenizer->name(), config.model.vocabulary_size);
  }
  corpus.identity = data_identity(*corpus.train);
  return corpus;
}

// The request's config with everything decided that depends on the machine or on the run's past.
config::Config settle(config::Config config, const std::optional<Past>& past) {
  config::Precision& precision = config.train.precision;
  if (past && precision == config::Precision::automatic) {
    precision = past->checkpoint.config.train.precision;
  }
  precision = resolve(precision);
  if (past) {
    check_resumable(*past, config);
  }
  return config;
}

void set_threads(std::int64_t threads) {
  at::set_num_threads(threads > 0 ? static_cast<int>(threads) : physical_cores());
}

class Run {
 public:
  Run(const TrainRequest& request, config::Config config, Corpus corpus, const std::optional<Past>& past)
      : folder_(request.out),
        config_(std::move(config)),
        corpus_(std::move(corpus)),
        model_(past ? eval::build_model(past->checkpoint)
                    : models::LanguageModel(config_.model, static_cast<std::uint64_t>(config_.train.seed))),
        state_(past ? from_checkpoint(past->checkpoint, model_.parameters(), past->file.string())
                    : fresh_state(model_.parameters())),
        batches_(data::make_batches(corpus_.train,
                                    {.batch = config_.train.batch_size, .length = config_.model.context_length},
                                    config_.data.batching, static_cast<std::uint64_t>(config_.train.seed))),
        saved_(past ? past->file : fs::path()),
        saved_step_(past ? past->checkpoint.step : -1) {
    batches_->seek(state_.position);
    write_text_file(folder_ / "config.toml", config::to_toml(config_));
    log_info("{}: {} parameters, {}, {} products, {} threads", request.title,
             format_count(static_cast<double>(model_.parameters().count())), corpus_.identity,
             config::name_of(config_.train.precision), at::get_num_threads());
    report_.emplace(folder_, request.title, state_.step, config_.train.steps);
  }

  TrainResult finish() {
    const config::TrainOptions& options = config_.train;
    const auto due = [this](std::int64_t every) { return every > 0 && state_.step > 0 && state_.step % every == 0; };
    while (state_.step < options.steps && !interrupted()) {
      if (due(options.evaluate_every)) {
        validate();  // here, not behind the step: a run killed while it validated owes it when resumed
      }
      advance();
      if (due(options.checkpoint_every)) {
        save();
      }
    }
    save();
    if (!interrupted()) {
      validate();
    }
    return result();
  }

 private:
  nn::Context context() const {
    nn::Context context;
    context.implementation = config_.train.implementation;
    context.compute_dtype = compute_dtype(config_.train.precision);
    return context;
  }

  // One step, timed and logged.
  void advance() {
    const auto start = std::chrono::steady_clock::now();
    const data::Batch batch = batches_->next();
    if (batch.starts_afresh) {
      state_.memory.forget();
    }
    const StepOutcome outcome = train_step(model_, eval::to_tensor(batch, model_), state_, config_.train, context());
    if (!outcome.finite()) {
      refuse(fmt::format("the loss is {} and the gradient norm {}", outcome.loss, outcome.gradient_norm),
             state_.step + 1);
    }
    state_.position = batches_->position();
    count(outcome, batch.batch * batch.length,
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
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
    eval::EvaluateOptions options{.batch_size = config_.train.batch_size, .context = context()};
    options.context.usage = &usage;
    const eval::Evaluation evaluation = eval::evaluate(model_, corpus_.validation, options);
    if (!evaluation.complete) {
      return;
    }
    if (!std::isfinite(evaluation.loss)) {
      refuse(fmt::format("the validation loss is {}", evaluation.loss), state_.step);
    }
    report_->log_validation(state_, evaluation, usage);
    log_info("step {}: validation loss {:.4f}, perplexity {:.3f}", state_.step, evaluation.loss, evaluation.perplexity);
  }

  void save() {
    if (saved_step_ == state_.step) {
      return;
    }
    report_->sync();
    try {
      saved_ = eval::write_checkpoint(to_checkpoint(state_, model_, config_, corpus_.tokenizer, corpus_.identity),
                                      folder_ / "checkpoints", config_.train.keep_checkpoints);
    } catch (const eval::NotFiniteError& error) {
      refuse(error.what(), state_.step);
    }
    saved_step_ = state_.step;
  }

  [[noreturn]] void refuse(std::string_view what, std::int64_t step) const {
    fail(
        "train: {} at step {}: training stopped; the last good checkpoint is {}; try a lower train.learning_rate, "
        "more train.warmup_steps, a smaller train.clip_norm or train.precision = \"fp32\"",
        what, step, saved_.empty() ? std::string("none") : saved_.string());
  }

  TrainResult result() const {
    const bool steady = state_.steady_seconds > 0.0;
    const auto tokens = static_cast<double>(steady ? state_.steady_tokens : state_.tokens);
    const double seconds = steady ? state_.steady_seconds : state_.seconds;
    TrainResult result{.steps = state_.step,
                       .train_loss = report_->train_loss(),
                       .tokens_per_second = seconds > 0.0 ? tokens / seconds : 0.0,
                       .seconds = state_.seconds,
                       .peak_memory_bytes = peak_memory_bytes(),
                       .parameters = model_.parameters().count(),
                       .parameters_sha256 = parameters_sha256(model_.parameters()),
                       .interrupted = interrupted(),
                       .validation = report_->validations()};
    if (!result.validation.empty()) {
      result.validation_loss = result.validation.back().loss;
      result.validation_bits_per_byte = result.validation.back().bits_per_byte;
    }
    return result;
  }

  fs::path folder_;
  config::Config config_;
  Corpus corpus_;
  models::LanguageModel model_;
  TrainState state_;
  std::unique_ptr<data::Batches> batches_;
  std::optional<Report> report_;
  fs::path saved_;               // the last checkpoint
  std::int64_t saved_step_;      // its step, -1 before any
  std::int64_t steps_here_ = 0;  // done by this process
};

}  // namespace

TrainResult train(const TrainRequest& request) {
  config::check(request.config, "train");
  make_folder(request.out);
  const FolderLock lock(request.out);
  std::optional<Past> past = open_run(request);
  config::Config config = settle(request.config, past);
  Corpus corpus = open_corpus(config, request.cache);
  if (past) {
    check_data(past->checkpoint, *corpus.train, past->file.string());
  }
  set_threads(config.train.threads);
  catch_interrupts();
  reset_peak_memory();
  Run run(request, std::move(config), std::move(corpus), past);
  past.reset();  // the run has its own copies
  return run.finish();
}

}  // namespace headroom::train
