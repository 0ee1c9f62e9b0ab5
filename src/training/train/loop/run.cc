#include "run.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/transformed.h"
#include "headroom/core/error.h"
#include "headroom/decode/generate.h"
#include "headroom/models/compute.h"
#include "headroom/models/language_model.h"

namespace headroom::train {
namespace {

// The first steps of a process are excluded from its speed, because caches and allocators are cold.
constexpr std::int64_t kWarmingSteps = 3;
constexpr std::int64_t kSampleTokens = 60;

// Finds activations whose squares overflow. A norm then divides by infinity and returns 0, so the loss stays finite and
// equals the loss of a model that ignores its input.
class OverflowFinder : public nn::Observer {
 public:
  bool wants(std::string_view name) const override { return name.ends_with("embedding") || name.ends_with(".out"); }
  at::Tensor observe(std::string_view name, at::Tensor value) override {
    if (place_.empty() && !value.detach().to(at::kFloat).square().sum(-1).isfinite().all().item<bool>()) {
      place_ = name;
    }
    return value;
  }
  const std::string& place() const { return place_; }  // name of the first one found; empty: none

 private:
  std::string place_;
};

// Returns the model's continuation, always drawn with the same seed. Throws UserError for an unusable prompt.
std::string sample_text(const models::Model& model, const tokenizers::Tokenizer& tokenizer, const std::string& prompt,
                        std::int64_t tokens, const nn::Context& context) {
  constexpr double kTemperature = 0.8;
  return decode::generate(models::as_language_model(model, "train"), tokenizer, prompt,
                          {.tokens = tokens, .temperature = kTemperature, .context = context})
      .text;
}

}  // namespace

Run::Run(RunParts parts, parallel::GlooGroup& group)
    : config_(parts.config),
      task_(tasks::task_for(config_, "train")),
      plan_(config_, task_.figures(), parts.predictions),
      data_(std::move(parts.data)),
      group_(group),
      sharded_(parts.sharded),
      model_(sharded_ ? make_sharded_model(config_, sharded_) : build_run_model(config_, parts.resumed, parts.initial)),
      teacher_(open_teacher(config_, data_.tokenizer.get(), model_->device())),
      state_(parts.resumed != nullptr
                 ? from_checkpoint(parts.resumed->checkpoint, *model_, parts.resumed->file.string(), group_)
                 : initial_state(model_->parameters(), config_.train.optimizer, group_)),
      reducer_(sharded_ ? nullptr : make_gradient_reducer(*model_, config_.train, group_)),
      context_(models::make_context(config_.train, model_->device())),
      history_(std::move(parts.history)),
      recorded_losses_(std::move(parts.recorded_losses)),
      checkpoint_(parts.resumed != nullptr ? parts.resumed->file : std::filesystem::path()) {
  if (sharded_) {
    open_sharded(sharded_, config_, parts.out, state_.step,
                 parts.initial != nullptr ? &parts.initial->checkpoint : nullptr);
  }
  if (teacher_) {
    config_.train.teacher_sha256 = teacher_->parameters_sha256();
    require_memory(*teacher_, config_);
  }
  data_.training->seek(state_.position);
  const std::vector<MicroBatchRange> ranges = ranges_of(config_.train, group_.rank(), group_.size());
  if (group_.size() > 1 && config_.train.verify_every == 0) {
    data_.training->need_only(rows_of(config_.train, ranges));
  }
  state_.memory = own_rows(state_.memory, ranges, config_.train.accumulate);
  if (config_.train.sample_every > 0) {
    const std::string& prompt = config_.train.sample_prompt;
    sample_prompt_ = prompt.empty() ? data_.validation->sample_prompt() : prompt;
    sample_text(*model_, *data_.tokenizer, sample_prompt_, 0, context_);  // reject a bad prompt before training
  }
}

config::Config Run::written_config() const {
  config::Config config = config_;
  if (plan_.validates_part()) {
    config.train.evaluate_every = config::kAutomatic;
  }
  return config;
}

TrainResult Run::finish(Writer& writer) {
  while (!plan_.finished(state_.step) && !stops()) {
    if (plan_.validates(state_.step, history_)) {  // before the step, so that a killed run repeats it when resumed
      validate(plan_.predictions(), writer);
      if (stops()) {
        break;
      }
    }
    const StepOutcome outcome = advance(writer);
    if (plan_.logs(state_.step)) {
      log(outcome, writer);
    }
    if (plan_.samples(state_.step)) {
      sample(writer);
    }
    resolve_checkpoint_interval(writer);
    if (plan_.saves(state_.step)) {
      save(writer);
    }
  }
  if (history_.saved_step != state_.step && !(stops() && state_.step == 0)) {
    save(writer);
  }
  if (!stops()) {
    if (plan_.validates(state_.step, history_)) {
      validate(plan_.predictions(), writer);
    }
    if (!stops() && plan_.validates_whole(state_.step, history_)) {
      validate(config_.train.evaluate_tokens, writer);
    }
    if (const std::string why = plan_.failed(history_); !stops() && !why.empty()) {
      throw DivergedError(fmt::format("train: {}, so the run has failed; try {}", why, advice(config_.train)));
    }
    if (const std::string remark = plan_.remark(history_); !remark.empty()) {
      writer.warning(remark);
    }
    log_debug("{}", losses_key(history_, config_.train.steps));
  }
  return result();
}

bool Run::stops() const {
  return group_.size() == 1 ? interrupted() : stop_;
}

// Runs one step and measures its time.
StepOutcome Run::advance(Writer& writer) {
  const bool nothing_to_save = steps_here_ == 0 && group_.size() == 1;
  if (nothing_to_save) {
    end_soon_if_interrupted(true);
  }
  const auto start = std::chrono::steady_clock::now();
  const double cpu = cpu_seconds();
  const models::Batch batch = data_.training->next();
  if (batch.resets_memory) {
    state_.memory.reset();
  }
  const StepOutcome outcome = sharded_ ? sharded_step(sharded_, batch, state_, config_.train, group_, interrupted())
                                       : train_step({*model_, teacher_.get()}, batch.to(model_->device()), state_,
                                                    config_.train, context_, *reducer_);
  if (nothing_to_save) {
    end_soon_if_interrupted(false);
  }
  stop_ = stop_ || outcome.stop;
  if (const std::string why = TrainingPlan::diverged(outcome); !why.empty()) {
    throw_diverged(why, state_.step + 1);
  }
  state_.position = data_.training->position();
  count(outcome, batch.tokens, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
        cpu_seconds() - cpu);
  writer.step(state_.step, outcome.loss, state_.interval);
  return outcome;
}

void Run::count(const StepOutcome& outcome, std::int64_t tokens, double seconds, double cpu) {
  state_.tokens += tokens;
  state_.seconds += seconds;
  state_.cpu_seconds += cpu;
  seconds_here_ += seconds;
  if (++steps_here_ > kWarmingSteps) {
    warm_seconds_here_ += seconds;
    state_.steady_tokens += tokens;
    state_.steady_seconds += seconds;
  }
  LogInterval& interval = state_.interval;
  interval.steps += 1;
  interval.tokens += tokens;
  interval.seconds += seconds;
  interval.loss += outcome.loss;
  interval.regulariser += outcome.regulariser;
}

// Returns the mean seconds per step; 0 until enough steps have been timed.
double Run::step_seconds() const {
  constexpr std::int64_t kSteps = kWarmingSteps + 5;
  constexpr double kLongEnough = 30.0;
  if (steps_here_ < kSteps && seconds_here_ < kLongEnough && !plan_.finished(state_.step)) {
    return 0.0;
  }
  return steps_here_ > kWarmingSteps ? warm_seconds_here_ / static_cast<double>(steps_here_ - kWarmingSteps)
                                     : seconds_here_ / static_cast<double>(steps_here_);
}

// Sets train.checkpoint_every = "auto" once the speed is known. Ranks measure different times, so the leader decides.
void Run::resolve_checkpoint_interval(Writer& writer) {
  std::int64_t& every = config_.train.checkpoint_every;
  if (every != config::kAutomatic) {
    return;
  }
  const double seconds = step_seconds();
  std::string decision;
  if (group_.leads() && seconds > 0.0) {
    double bytes = 0.0;
    const CheckpointParts parts{*model_, config_, data_.tokenizer, data_.training->identity(), group_};
    for (const auto& [name, tensor] : to_checkpoint(state_, parts).tensors) {
      bytes += static_cast<double>(tensor.nbytes());
    }
    decision = std::to_string(steps_between_checkpoints(config_.train.steps, seconds, bytes));
  }
  decision = group_.gather(decision).front();
  if (decision.empty()) {
    return;
  }
  every = std::stoll(decision);
  plan_.save_every(every);
  writer.config(written_config());
  if (!plan_.finished(state_.step)) {
    writer.checkpoints_every(every, seconds);
  }
}

// Logs the interval and starts a new one.
void Run::log(const StepOutcome& outcome, Writer& writer) {
  const LogInterval interval = std::exchange(state_.interval, {});
  const auto steps = static_cast<double>(interval.steps);
  history_.training.push_back(
      {.step = state_.step,
       .seconds = state_.seconds,
       .loss = interval.loss / steps,
       .regulariser = interval.regulariser / steps,
       .learning_rate = outcome.learning_rate,
       .gradient_norm = outcome.gradient_norm,
       .tokens = state_.tokens,
       .tokens_per_second = interval.seconds > 0.0 ? static_cast<double>(interval.tokens) / interval.seconds : 0.0,
       .peak_memory_bytes = models::peak_memory_bytes(model_->device())});
  writer.training(history_.training.back());
  if (writer.writes()) {
    if (const std::string found = compare_with_recorded(recorded_losses_, history_, config_.train.steps);
        !found.empty()) {
      log_info("{}", found);
    }
  }
}

void Run::validate(std::int64_t most_predictions, Writer& writer) {
  writer.note(state_.step, "validating");
  nn::ExpertUsage usage;
  tasks::EvaluateOptions options{.batch_size = config_.train.batch_size,
                                 .batch_tokens = config_.train.batch_tokens / config_.train.accumulate,
                                 .most_tokens = most_predictions,
                                 .context = context_,
                                 .show_progress = writer.writes(),
                                 .group = sharded_ ? &alone() : &group_};  // the ranks divide each batch
  options.context.usage = &usage;
  OverflowFinder overflow;
  options.context.observer = &overflow;
  const tasks::Evaluation evaluation = data_.validation->evaluate(*model_, options);
  if (!evaluation.complete) {
    stop_ = true;
    return;
  }
  const tasks::Figures figures = task_.figures_of(evaluation.sums);
  if (const std::string why = plan_.diverged(figures); !why.empty()) {
    throw_diverged(why, state_.step);
  }
  for (const std::string& place : group_.gather(overflow.place())) {
    if (!place.empty()) {
      throw_diverged(fmt::format("the activations overflow ({})", place), state_.step);
    }
  }
  // Before the validation is logged, so that a run killed in between validates again.
  if (plan_.keeps_as_best(figures, history_)) {
    write_state([&](const store::Checkpoint& checkpoint) { writer.best(checkpoint); });
    history_.best_step = state_.step;
  }
  history_.validations.push_back(
      {.step = state_.step,
       .seconds = state_.seconds,
       .figures = figures,
       .predictions = most_predictions == config_.train.evaluate_tokens ? 0 : evaluation.predictions(),
       .tokens = state_.tokens,
       .experts = balance_of(usage),
       .peak_memory_bytes = models::peak_memory_bytes(model_->device())});
  writer.validation(history_.validations);
}

void Run::sample(Writer& writer) const {
  if (writer.writes()) {
    const Progress progress("sample", kSampleTokens, "tokens");
    writer.sample(state_.step, sample_prompt_,
                  sample_text(*model_, *data_.tokenizer, sample_prompt_, kSampleTokens, context_));
  }
}

void Run::save(Writer& writer) {
  bool whole = true;  // also as an ordinary checkpoint
  if (sharded_) {
    whole = plan_.finished(state_.step) || stops();
    const Json values = {{"step", state_.step},
                         {"metadata", checkpoint().metadata},
                         {"keep", config_.train.keep_checkpoints},
                         {"wait", whole}};
    sharded_("save", values, {});
  }
  if (whole) {
    write_state([&](const store::Checkpoint& checkpoint) { checkpoint_ = writer.checkpoint(checkpoint); });
  }
  history_.saved_step = state_.step;
}

template <class Write>
void Run::write_state(const Write& write) const {
  try {
    write(checkpoint());
  } catch (const store::NotFiniteError& error) {
    throw_diverged(error.what(), state_.step);
  }
}

store::Checkpoint Run::checkpoint() const {
  TrainState whole = state_;
  if (group_.size() > 1) {
    whole.memory = gather_layers(state_.memory, config_.train, group_);
  }
  store::Checkpoint checkpoint = to_checkpoint(whole, {.model = *model_,
                                                       .config = config_,
                                                       .tokenizer = data_.tokenizer,
                                                       .data = data_.training->identity(),
                                                       .group = group_,
                                                       .special_tokens = data_.special_tokens});
  if (sharded_) {
    add_shards(sharded_, checkpoint);
  }
  return checkpoint;
}

void Run::throw_diverged(std::string_view what, std::int64_t step) const {
  throw DivergedError(fmt::format(
      "train: {} at step {}, so training stopped; {}; try {}{}", what, step,
      checkpoint_.empty() ? "no checkpoint has been written" : "the last good checkpoint is " + checkpoint_.string(),
      advice(config_.train),
      config_.train.precision == config::Precision::bf16 ? ", or train.precision = \"fp32\"" : ""));
}

TrainResult Run::last_logged() const {
  TrainResult result{.parameters = model_->parameters().count()};
  if (!history_.training.empty()) {
    result.steps = history_.training.back().step;
    result.seconds = history_.training.back().seconds;
  }
  return result;
}

TrainResult Run::result() const {
  const bool steady = state_.steady_seconds > 0.0;
  const auto tokens = static_cast<double>(steady ? state_.steady_tokens : state_.tokens);
  const double seconds = steady ? state_.steady_seconds : state_.seconds;
  const auto [epoch, in_epoch] = state_.position;
  if (const parallel::GlooGroup::Traffic traffic = group_.traffic(); group_.size() > 1 && reducer_) {
    log_debug("{} elements owned; {} bytes sent and {} received in {} steps; peak memory {} bytes",
              sum_over(reducer_->owned(), &Shard::count), traffic.sent, traffic.received, steps_here_,
              models::peak_memory_bytes(model_->device()));
  }
  return {.steps = state_.step,
          .train_loss = history_.last_loss(),
          .tokens_per_second = seconds > 0.0 ? tokens / seconds : 0.0,
          .seconds = state_.seconds,
          .cpu_seconds = state_.cpu_seconds,
          .core_share = state_.seconds > 0.0 && model_->device().is_cpu()
                            ? state_.cpu_seconds / (state_.seconds * at::get_num_threads())
                            : 0.0,
          .epochs = epoch > 0 ? static_cast<double>(epoch) * static_cast<double>(state_.step) /
                                    static_cast<double>(state_.step - in_epoch)
                              : 0.0,
          .peak_memory_bytes = models::peak_memory_bytes(model_->device()),
          .parameters = model_->parameters().count(),
          .parameters_sha256 = sharded_ ? "" : parameters_sha256(model_->parameters()),
          .interrupted = stops(),
          .validation = history_.validations,
          .best_step = config_.train.keep_best ? history_.best_step : std::nullopt};
}

}  // namespace headroom::train
