// `headroom advise`: measures the machine, fits the model size and batch size, trains pilot runs and writes the config.
#include "advise.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "data/text/text.h"
#include "findings.h"
#include "fit.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/text/format.h"
#include "foundation/core/text/message.h"
#include "foundation/core/transformed.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "pilot_runs.h"
#include "tools/compare/run/execution.h"
#include "tools/compare/run/run_folder.h"
#include "training/cost/cost.h"
#include "training/tasks/task.h"
#include "training/train/loop/start.h"
#include "training/train/loop/train.h"

namespace headroom::advise {
namespace {

namespace fs = std::filesystem;

constexpr double kPilotShare = 0.1;      // share of the budget spent before the advised run
constexpr double kMeasuringShare = 0.1;  // share of that spent on measuring speeds
constexpr const char* kAdvisedFile = "advised.toml";

class Adviser {
 public:
  Adviser(const AdviseRequest& request, config::Config asked)
      : request_(request),
        asked_(std::move(asked)),
        task_(tasks::task_for(asked_, "advise")),
        budget_(request, asked_),
        runs_(task_, request.cache),
        config_(asked_) {}

  Advice advise();

 private:
  bool keeps(const char* what) const { return request_.keep.contains(what); }
  bool is_synthetic() const { return asked_.data.synthetic != config::Synthetic::none; }
  // The rule for the size holds for text, so synthetic tasks keep theirs.
  bool keeps_size() const { return keeps(kKeepSize) || is_synthetic(); }
  double pilot_seconds() const { return kPilotShare * request_.budget; }
  double measuring() const;
  double step_tokens(const config::Config& config) const {
    return static_cast<double>(config.train.batch_size * config.model.context_length);
  }
  double rate(const config::Config& config) {
    return step_tokens(config) / budget_.measure(config, measuring()).step_seconds;
  }
  void choose_vocabularies();
  void fit_size();
  void fit_batch();
  void run_pilots();
  void run_stage(PilotRuns& pilots, Stage stage, bool last_preferred, const char* preference);
  std::vector<config::Config> batches_of(const config::Config& config) const;
  double validation_tokens(const config::Config& config, double unit);
  double shortest_pilot(const config::Config& config, double unit);
  bool leaves_room(const config::Config& config) { return shortest_pilot(config, unit()) <= unit(); }
  double budget_for(const config::Config& config, double units);
  [[noreturn]] void refuse_budget();
  double units();  // time of all pilot runs, relative to one first-round run
  double unit() { return (1.0 - kMeasuringShare) * pilot_seconds() / units(); }  // seconds per first-round run
  void set_run_length();
  void finish();

  const AdviseRequest& request_;
  const config::Config asked_;
  const tasks::Task& task_;
  Budget budget_;
  compare::Runs runs_;
  config::Config config_;                   // with all decisions made so far
  std::vector<std::int64_t> vocabularies_;  // candidates
  DataSize data_;                           // in tokens of config_'s tokenizer
  FitSummary fit_;
  double units_ = 0.0;  // 0: not counted yet
  Advice advice_;
};

// Whether the tokenizer is trained on the text, so that its vocabulary size can be chosen.
bool trains_tokenizer(const config::Config& config) {
  const auto tokens = [](const std::vector<std::string>& files) {
    return std::ranges::any_of(files, config::is_token_file);
  };
  return config.tokenizer.kind == config::TokenizerKind::sentencepiece && config.tokenizer.model.empty() &&
         config.data.generator == config::Generator::none && !tokens(config.data.train) &&
         !tokens(config.data.validation);
}

// Returns the size of the training text in bytes; stops counting at `most`.
double text_bytes(const config::DataOptions& data, double most) {
  const std::unique_ptr<tokenizers::TextSource> text = data::open_split(data, data::Split::train);
  double bytes = 0.0;
  for (std::string block; bytes < most && text->next(block);) {
    bytes += static_cast<double>(block.size());
  }
  return bytes;
}

bool fits_machine(const config::Config& config) {
  try {
    train::check_machine(config);
    return true;
  } catch (const UserError&) {
    return false;
  }
}

double Adviser::measuring() const {
  constexpr double kSpeeds = 12.0, kMost = 5.0;  // expected number of measurements; maximum seconds for each
  return std::min(kMost, kMeasuringShare * pilot_seconds() / kSpeeds);
}

// Stages that run before the vocabulary is chosen use the config's own vocabulary size or, if the text is too small for
// it, the largest candidate.
void Adviser::choose_vocabularies() {
  const std::int64_t own = asked_.tokenizer.vocabulary_size;
  if (trains_tokenizer(asked_) && !keeps(kKeepVocabulary)) {
    constexpr double kEnough = 1000.0;  // bytes per token, more than vocabulary_sizes() requires
    vocabularies_ = vocabulary_sizes(own, text_bytes(asked_.data, kEnough * static_cast<double>(own)));
  }
  if (!vocabularies_.empty()) {
    const bool has_own = std::ranges::find(vocabularies_, own) != vocabularies_.end();
    config_ = with_vocabulary(asked_, has_own ? own : vocabularies_.back());
  }
  std::erase_if(vocabularies_, [&](std::int64_t size) {
    const config::Config other = with_vocabulary(asked_, size);
    try {
      config::check(other, "advise");
      data_size(other, request_.cache);
      return false;
    } catch (const UserError&) {
      if (size == config_.tokenizer.vocabulary_size) {
        throw;
      }
      return true;
    }
  });
  data_ = data_size(config_, request_.cache);
}

void Adviser::fit_size() {
  fit_.rate = rate(config_);
  fit_.size_kept = keeps_size();
  std::vector<double> factors, forward;
  std::vector<config::Config> sizes;
  for (const double factor : size_factors()) {
    const std::optional<config::Config> other =
        fit_.size_kept && factor != 1.0 ? std::nullopt : scaled(config_, factor);
    if (other && (factor == 1.0 || fits_machine(*other))) {
      factors.push_back(factor);
      forward.push_back(forward_macs(*other));
      sizes.push_back(*other);
    }
  }
  std::size_t at = static_cast<std::size_t>(std::ranges::find(factors, 1.0) - factors.begin());
  constexpr int kRounds = 3;  // repeated because the speed changes with the model size
  for (int round = 0; round < kRounds; ++round) {
    const double macs_a_second = 3.0 * forward[at] * rate(sizes[at]);
    const std::size_t fits =
        best_size(forward, macs_a_second * kRunShare * request_.budget, static_cast<double>(data_.training));
    if (fits == at) {
      break;
    }
    at = fits;
  }
  for (; at > 0 && !leaves_room(batches_of(sizes[at]).front()); --at) {
    fit_.size_limited = true;
  }
  config_ = sizes[at];
  fit_.size_factor = factors[at];
}

double Adviser::units() {
  if (units_ > 0.0) {
    return units_;
  }
  double all = halving_units(learning_rate_candidates(config_).size()) + halving_units(vocabularies_.size());
  if (!request_.variants.empty()) {
    all += halving_units(variant_candidates(config_, request_.variants).size());
  }
  if (request_.heads) {
    all += halving_units(head_candidates(config_).size());
  }
  units_ = all;
  return all;
}

// Returns the config with each batch size that may be advised, ascending.
std::vector<config::Config> Adviser::batches_of(const config::Config& config) const {
  constexpr double kFewestTokens = 512.0, kBatchesPerEpoch = 8.0;
  std::vector<config::Config> batches;
  const auto own = static_cast<double>(config.train.batch_size);
  for (const double factor : {0.125, 0.25, 0.5, 1.0, 2.0, 4.0}) {
    config::Config other = config;
    other.train.batch_size = std::lround(own * factor);
    const double tokens = step_tokens(other);
    const bool sensible = !keeps(kKeepBatch) && own * factor >= 1.0 && tokens >= kFewestTokens &&
                          tokens * kBatchesPerEpoch <= static_cast<double>(data_.training) &&
                          other.train.batch_size % other.train.accumulate == 0 && fits_machine(other);
    if (factor == 1.0 || sensible) {
      batches.push_back(std::move(other));
    }
  }
  return batches;
}

void Adviser::fit_batch() {
  fit_.batch_kept = keeps(kKeepBatch);
  const std::vector<config::Config> batches = batches_of(config_);
  std::vector<double> rates = transformed(batches, [&](const config::Config& batch) { return rate(batch); });
  std::size_t fits = best_batch(rates);
  while (fits > 0 && !leaves_room(batches[fits])) {
    --fits;
  }
  config_ = batches[fits];
}

// The number of validation tokens that score pilot runs whose first round takes `unit` seconds.
double Adviser::validation_tokens(const config::Config& config, double unit) {
  constexpr double kForward = 3.0, kValidating = 1.0 / 7.0, kFewestTokens = 1024.0;
  return std::min(static_cast<double>(data_.validation),
                  std::max(kFewestTokens, kForward * kValidating * unit * rate(config)));
}

// Returns the seconds that a pilot run of kFewestSteps takes, in a first round of `unit` seconds.
double Adviser::shortest_pilot(const config::Config& config, double unit) {
  const train::StepTime speed = budget_.measure(config, measuring());
  return speed.start_seconds + static_cast<double>(kFewestSteps) * speed.step_seconds +
         kForwardShare * validation_tokens(config, unit) / rate(config);
}

// Returns the smallest budget whose first-round pilot runs, of which all pilot runs take `units`, leave room for the
// shortest one.
double Adviser::budget_for(const config::Config& config, double units) {
  constexpr int kIterations = 20;  // each shrinks the error to at most 1/7, the share of the validation
  double unit = 0.0;
  for (int i = 0; i < kIterations; ++i) {
    unit = shortest_pilot(config, unit);
  }
  return unit * units / ((1.0 - kMeasuringShare) * kPilotShare);
}

// The size and the batch are already the smallest ones that may be advised.
void Adviser::refuse_budget() {
  constexpr double kMargin = 1.1;  // the speed varies between measurements
  const auto about = [&](double units) { return format_duration(std::ceil(kMargin * budget_for(config_, units))); };
  std::string remedies = fmt::format("ask for about {} or more", about(units()));
  if (const double vocabulary = halving_units(vocabularies_.size()); vocabulary > 0.0) {
    remedies += fmt::format(", or for {} with --keep vocabulary", about(units() - vocabulary));
  }
  user_error(
      "advise: --budget: is too short for pilot runs of at least {} steps, got {}; {}{}", kFewestSteps,
      request_.budget < 1.0 ? fmt::format("{:.2g} s", request_.budget) : format_duration(request_.budget), remedies,
      keeps(kKeepSize) && !is_synthetic() ? ", or leave out --keep size, so that a smaller model may be advised" : "");
}

void Adviser::run_stage(PilotRuns& pilots, Stage stage, bool last_preferred, const char* preference) {
  if (stage.candidates.size() < kFinalists) {
    return;
  }
  stage.measure = advice_.measure;
  pilots.run(stage, last_preferred);
  const Candidate& taken = stage.candidates[stage.taken];
  if (!std::isfinite(taken.score())) {
    fail("advise: {}: every candidate diverged; try a lower train.learning_rate", stage.title);
  }
  config_ = taken.config;
  stage.sentence = stage_sentence(stage, preference);
  log_info("{}", stage.sentence);
  advice_.stages.push_back(std::move(stage));
}

void Adviser::run_pilots() {
  if (!leaves_room(config_)) {
    refuse_budget();
  }
  PilotRuns pilots(budget_, runs_,
                   {.out = request_.out,
                    .cache = request_.cache,
                    .unit = unit(),
                    .units = units(),
                    .measuring = measuring(),
                    .validation_fraction = validation_tokens(config_, unit()) / static_cast<double>(data_.validation)});
  Stage rates{
      .name = "learning_rate", .title = "Learning rate", .candidates = learning_rate_candidates(config_), .own = 2};
  run_stage(pilots, std::move(rates), false, "the lower one is taken, because longer runs need lower rates");
  Stage vocabularies{
      .name = "vocabulary_size", .title = "Vocabulary", .candidates = vocabulary_candidates(config_, vocabularies_)};
  for (std::size_t i = 0; i < vocabularies.candidates.size(); ++i) {
    vocabularies.own =
        vocabularies.candidates[i].name == fmt::format("{}", config_.tokenizer.vocabulary_size) ? i : vocabularies.own;
  }
  run_stage(pilots, std::move(vocabularies), true,
            "the larger one is selected, because the context then holds more text");
  if (!request_.variants.empty()) {
    run_stage(pilots,
              {.name = "variant",
               .title = "Attention",
               .candidates = variant_candidates(config_, request_.variants),
               .own = 1},
              false, "the first one is taken");
  }
  if (request_.heads) {
    run_stage(pilots, {.name = "heads", .title = "Heads", .candidates = head_candidates(config_)}, false,
              "the first one is taken");
  }
}

// Sets the number of steps and validations of the advised run.
void Adviser::set_run_length() {
  constexpr double kForward = 1.0 / 3.0, kValidating = 0.02, kValidations = 20.0;
  data_ = data_size(config_, request_.cache);
  advice_.tokens_per_second = rate(config_);
  const double affordable = advice_.tokens_per_second * kRunShare * request_.budget;
  const double tokens = std::min(affordable, kMostEpochs * static_cast<double>(data_.training));
  const std::int64_t steps = std::max<std::int64_t>(1, rounded_down(tokens / step_tokens(config_)));
  train::set_steps(config_.train, steps, kWarmupShare);
  advice_.tokens = static_cast<double>(steps) * step_tokens(config_);
  advice_.epochs = advice_.tokens / static_cast<double>(data_.training);
  if (advice_.epochs > kEpochsWithoutDropout && config_.model.dropout == 0.0 && !is_synthetic()) {
    config_.model.dropout = kDropout;
    advice_.dropout_added = true;
  }
  const double validation = kForward * static_cast<double>(data_.validation) / advice_.tokens_per_second;
  const double run = advice_.tokens / advice_.tokens_per_second;
  const double times = std::clamp(std::floor(kValidating * run / validation), 1.0, kValidations);
  config::TrainOptions& train = config_.train;
  train.evaluate_every = std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(steps) / times));
  train.checkpoint_every =
      std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(steps) / kValidations));
  train.keep_best = true;
  config::check(config_, "advise");
}

void Adviser::finish() {
  fit_.text_tokens = static_cast<double>(data_.training);
  fit_.generated = is_synthetic();
  fit_.repeats = asked_.data.generated_train > 0;
  fit_.macs = forward_macs(config_);
  advice_.config = config_;
  advice_.parameters = cost::count_parameters(config_.model);
  advice_.spent = budget_.spent();
  advice_.sentences = advice_sentences(advice_, fit_);
  advice_.file = request_.out / kAdvisedFile;
  for (const Stage& stage : advice_.stages) {
    advice_.machine = stage.candidates[stage.taken].rounds.back().trained.front().origin.machine;
  }
  std::string remark = fmt::format("# Advised by {} for a budget of {}: {}\n", compare::program_version(),
                                   format_duration(request_.budget), printable(request_.command));
  write_advised(config_, request_.config, remark, advice_.file);
  advice_.sentences.push_back("Train it with: " + train_command(advice_));
  advice_.report = request_.out / "report.html";
  write_text_file(advice_.report, render_report(advice_));
}

Advice Adviser::advise() {
  advice_.source = request_.config;
  advice_.budget = request_.budget;
  advice_.command = request_.command;
  if (is_synthetic()) {
    const tasks::FigureKind& loss = task_.figures().front();
    advice_.measure = {.figure = loss.name, .unit = loss.unit, .data = "validation rows"};
  }
  choose_vocabularies();
  fit_size();
  fit_batch();
  run_pilots();
  set_run_length();
  finish();
  return std::move(advice_);
}

}  // namespace

Advice advise(const AdviseRequest& request) {
  config::Config asked = config::load_config(request.config, request.overrides);
  asked.model.require_no_pattern("advise");
  const tasks::Task& task = tasks::task_for(asked, "advise");
  const auto& figures = task.figures();
  const bool on_text = std::ranges::any_of(figures, [](const auto& kind) { return kind.name == "bits_per_byte"; });
  if (!on_text && asked.data.synthetic == config::Synthetic::none) {
    user_error(
        "advise: {}: must train a language model on text or data.synthetic, got {}; use `headroom sweep` to try values "
        "of any config",
        request.config, task.name());
  }
  if (asked.train.seconds > 0.0) {
    user_error("advise: train.seconds: must be 0, because --budget decides how long the advised run trains, got {}",
               asked.train.seconds);
  }
  if (!asked.train.start_from.empty() || !asked.train.teacher.empty()) {
    user_error(
        "advise: {}: train.start_from and train.teacher must not be set, because they fix the size and the tokenizer; "
        "use `headroom sweep` to try learning rates",
        request.config);
  }
  variant_candidates(asked, request.variants);  // fails before anything is measured
  train::refuse_others(request.out, train::FolderKind::advice, "advice");
  const FolderLock lock(request.out);
  return Adviser(request, std::move(asked)).advise();
}

}  // namespace headroom::advise
