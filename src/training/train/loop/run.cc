#include "run.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "balance.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "headroom/core/error.h"
#include "headroom/models/compute.h"
#include "headroom/store/open_model.h"
#include "pace.h"
#include "training/train/ranks/shared_memory.h"

namespace headroom::train {
namespace {

// Steps at the beginning of a process that do not count as its speed: caches and allocators are cold.
constexpr std::int64_t kWarmingSteps = 3;

std::unique_ptr<models::Model> model_of(const config::Config& config, const std::optional<Past>& past,
                                        const std::optional<Start>& start) {
  const at::Device device = models::resolve(config.train.device);
  if (start) {
    return first_model(*start, config.model, device);
  }
  return past ? store::build_trainable(past->checkpoint, device)
              : models::make_model(config.model, static_cast<std::uint64_t>(config.train.seed),
                                   at::TensorOptions(at::kFloat).device(device));
}

Share share_of(const Shares& shares, const parallel::GlooGroup& world) {
  return world.size() == 1 ? Share() : Share(shares, world.rank());
}

// Which rows of a batch are in these parts.
std::vector<bool> rows_of(const config::TrainOptions& options, const std::vector<Part>& parts) {
  const std::int64_t rows = options.batch_size / options.accumulate;  // of a micro-batch
  std::vector<bool> in(static_cast<std::size_t>(options.batch_size), false);
  for (const Part& part : parts) {
    std::fill(in.begin() + part.first * rows, in.begin() + part.end * rows, true);
  }
  return in;
}

}  // namespace

Run::Run(config::Config config, tasks::TaskData data, const std::optional<Past>& past, History history,
         parallel::GlooGroup& world, const std::optional<Start>& start)
    : config_(std::move(config)),
      task_(tasks::task_for(config_, "train")),
      plan_(config_, task_.figures()),
      data_(std::move(data)),
      world_(world),
      model_(model_of(config_, past, start)),
      shares_(model_->parameters(), world_.size(), config_.train.optimizer),
      state_(past ? from_checkpoint(past->checkpoint, *model_, past->file.string(), share_of(shares_, world_))
                  : fresh_state(model_->parameters(), config_.train.optimizer, share_of(shares_, world_))),
      exchange_(make_exchange(*model_, config_.train, world_, shares_)),
      context_(models::make_context(config_.train, model_->device())),
      history_(std::move(history)),
      checkpoint_(past ? past->file : std::filesystem::path()) {
  data_.training->seek(state_.position);
  if (world_.size() > 1 && config_.train.verify_every == 0) {
    data_.training->need_only(rows_of(config_.train, parts_of(config_.train, world_.rank(), world_.size())));
  }
  state_.memory =
      own_rows(state_.memory, parts_of(config_.train, world_.rank(), world_.size()), config_.train.accumulate);
  if (config_.train.sample_every > 0) {
    const std::string& prompt = config_.train.sample_prompt;
    samples_.emplace(prompt.empty() ? data_.validation->beginning() : prompt, data_.tokenizer, *model_, context_);
  }
}

TrainResult Run::finish(Writer& writer) {
  while (!plan_.finished(state_.step) && !stops()) {
    if (plan_.validates(state_.step, history_)) {
      validate(writer);  // before the step, not after it: a run killed while it validated owes it when resumed
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
    settle(writer);
    if (plan_.saves(state_.step)) {
      save(writer);
    }
  }
  if (history_.saved_step != state_.step) {
    save(writer);
  }
  if (!stops()) {
    if (plan_.validates(state_.step, history_)) {
      validate(writer);
    }
    if (const std::string why = plan_.failed(history_); !stops() && !why.empty()) {
      throw DivergedError(fmt::format("train: {}: the run has failed; try {}", why, advice(config_.train)));
    }
    if (const std::string said = plan_.remark(history_); !said.empty()) {
      writer.warning(said);
    }
  }
  return result();
}

bool Run::stops() const {
  return world_.size() == 1 ? interrupted() : stop_;
}

// One step, timed.
StepOutcome Run::advance(Writer& writer) {
  const auto start = std::chrono::steady_clock::now();
  const models::Batch batch = data_.training->next();
  if (batch.starts_afresh) {
    state_.memory.reset();
  }
  const StepOutcome outcome =
      train_step(*model_, batch.to(model_->device()), state_, config_.train, context_, *exchange_);
  stop_ = stop_ || outcome.stop;
  if (const std::string why = Plan::diverged(outcome); !why.empty()) {
    refuse(why, state_.step + 1);
  }
  state_.position = data_.training->position();
  count(outcome, batch.tokens, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  writer.step(state_.step, outcome.loss, state_.interval);
  return outcome;
}

void Run::count(const StepOutcome& outcome, std::int64_t tokens, double seconds) {
  state_.tokens += tokens;
  state_.seconds += seconds;
  seconds_here_ += seconds;
  if (++steps_here_ == 1) {
    world_.set_timeout(std::chrono::seconds(config_.train.timeout));
  }
  if (steps_here_ > kWarmingSteps) {
    warm_seconds_here_ += seconds;
    state_.steady_tokens += tokens;
    state_.steady_seconds += seconds;
  }
  Interval& interval = state_.interval;
  interval.steps += 1;
  interval.tokens += tokens;
  interval.seconds += seconds;
  interval.loss += outcome.loss;
  interval.regulariser += outcome.regulariser;
}

// Once the first steps told how long one takes; 0 before.
double Run::step_seconds() const {
  constexpr std::int64_t kSteps = kWarmingSteps + 5;
  constexpr double kLongEnough = 30.0;
  if (steps_here_ < kSteps && seconds_here_ < kLongEnough && !plan_.finished(state_.step)) {
    return 0.0;
  }
  return steps_here_ > kWarmingSteps ? warm_seconds_here_ / static_cast<double>(steps_here_ - kWarmingSteps)
                                     : seconds_here_ / static_cast<double>(steps_here_);
}

// How often checkpoints are written, where the config leaves that to the run. Nothing but the files depends on it. Of
// several processes, whose clocks differ, the leading one decides.
void Run::settle(Writer& writer) {
  std::int64_t& every = config_.train.checkpoint_every;
  if (every != config::kAutomatic) {
    return;
  }
  const double seconds = step_seconds();
  std::string decided;
  if (world_.leads() && seconds > 0.0) {
    double bytes = 0.0;
    const Surroundings around{*model_, config_, data_.tokenizer, data_.training->identity(), share_of(shares_, world_)};
    for (const auto& [name, tensor] : to_checkpoint(state_, around).tensors) {
      bytes += static_cast<double>(tensor.nbytes());
    }
    decided = std::to_string(steps_between_checkpoints(config_.train.steps, seconds, bytes));
  }
  decided = world_.gather(decided).front();
  if (decided.empty()) {
    return;
  }
  every = std::stoll(decided);
  plan_.save_every(every);
  writer.config(config_);
  if (!plan_.finished(state_.step)) {
    writer.checkpoints_every(every, seconds);
  }
}

// Ends the interval.
void Run::log(const StepOutcome& outcome, Writer& writer) {
  const Interval interval = std::exchange(state_.interval, {});
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
       .peak_memory_bytes = peak_memory_bytes()});
  writer.training(history_.training.back());
}

void Run::validate(Writer& writer) {
  writer.note(state_.step, "validating");
  nn::ExpertUsage usage;
  tasks::EvaluateOptions options{.batch_size = config_.train.batch_size,
                                 .batch_tokens = config_.train.batch_tokens / config_.train.accumulate,
                                 .most_tokens = config_.train.evaluate_tokens,
                                 .context = context_,
                                 .show_progress = writer.writes(),
                                 .peers = &world_};
  options.context.usage = &usage;
  const tasks::Evaluation evaluation = data_.validation->evaluate(*model_, options);
  if (!evaluation.complete) {
    stop_ = true;
    return;
  }
  const tasks::Figures figures = task_.figures_of(evaluation.sums);
  if (const std::string why = plan_.diverged(figures); !why.empty()) {
    refuse(why, state_.step);
  }
  if (plan_.keeps_as_best(figures, history_)) {  // first: a run killed in between validates again
    write_state([&](const store::Checkpoint& checkpoint) { writer.best(checkpoint); });
    history_.best_step = state_.step;
  }
  history_.validations.push_back({.step = state_.step,
                                  .seconds = state_.seconds,
                                  .figures = figures,
                                  .tokens = state_.tokens,
                                  .experts = balance_of(usage),
                                  .peak_memory_bytes = peak_memory_bytes()});
  writer.validation(history_.validations.back());
}

// Nothing but the file depends on it.
void Run::sample(Writer& writer) const {
  if (writer.writes()) {
    const Progress pause("sample", Samples::kTokens, "tokens");  // its time is not counted as training
    writer.sample(state_.step, samples_->prompt(), samples_->draw(*model_, context_));
  }
}

void Run::save(Writer& writer) {
  write_state([&](const store::Checkpoint& checkpoint) { checkpoint_ = writer.checkpoint(checkpoint); });
  history_.saved_step = state_.step;
}

template <class Write>
void Run::write_state(const Write& write) const {
  try {
    TrainState whole = state_;
    if (world_.size() > 1) {
      whole.memory = spread_layers(state_.memory, config_.train, world_);
    }
    write(to_checkpoint(whole, {.model = *model_,
                                .config = config_,
                                .tokenizer = data_.tokenizer,
                                .data = data_.training->identity(),
                                .share = share_of(shares_, world_)}));
  } catch (const store::NotFiniteError& error) {
    refuse(error.what(), state_.step);
  }
}

void Run::refuse(std::string_view what, std::int64_t step) const {
  const bool coarse = config_.train.precision == config::Precision::bf16;
  throw DivergedError(fmt::format("train: {} at step {}: training stopped; the last good checkpoint is {}; try {}{}",
                                  what, step, checkpoint_.empty() ? std::string("none") : checkpoint_.string(),
                                  advice(config_.train), coarse ? ", or train.precision = \"fp32\"" : ""));
}

TrainResult Run::result() const {
  const bool steady = state_.steady_seconds > 0.0;
  const auto tokens = static_cast<double>(steady ? state_.steady_tokens : state_.tokens);
  const double seconds = steady ? state_.steady_seconds : state_.seconds;
  if (const parallel::GlooGroup::Traffic traffic = world_.traffic(); world_.size() > 1) {
    log_debug("{} numbers looked after; {} bytes sent and {} received in {} steps; peak memory {} bytes",
              shares_.numbers(world_.rank()), traffic.sent, traffic.received, steps_here_, peak_memory_bytes());
  }
  return {.steps = state_.step,
          .train_loss = history_.last_loss(),
          .tokens_per_second = seconds > 0.0 ? tokens / seconds : 0.0,
          .seconds = state_.seconds,
          .peak_memory_bytes = peak_memory_bytes(),
          .parameters = model_->parameters().count(),
          .parameters_sha256 = parameters_sha256(model_->parameters()),
          .interrupted = stops(),
          .validation = history_.validations};
}

}  // namespace headroom::train
