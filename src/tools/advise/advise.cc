// Advice from end to end: what the machine does, what suits the budget, what trials say, the config.
#include "advise.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "advised_config.h"
#include "arms.h"
#include "data/text/text.h"
#include "fit.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/text/format.h"
#include "foundation/core/text/message.h"
#include "halving.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "ledger.h"
#include "sentences.h"
#include "tools/compare/run/program.h"
#include "tools/compare/run/runs.h"
#include "training/cost/cost.h"
#include "training/tasks/task.h"
#include "training/train/loop/machine.h"
#include "training/train/record/folder.h"
#include "trials.h"

namespace headroom::compare {
namespace {

namespace fs = std::filesystem;

constexpr double kTrialShare = 0.1;      // of the budget: everything before the run
constexpr double kMeasuringShare = 0.1;  // of that, for speeds
constexpr const char* kAdvisedFile = "advised.toml";

class Adviser {
 public:
  Adviser(const AdviseRequest& request, config::Config asked)
      : request_(request),
        asked_(std::move(asked)),
        task_(tasks::task_for(asked_, "advise")),
        ledger_(request, asked_),
        runs_(task_, request.cache),
        config_(asked_) {}

  Advice advise();

 private:
  bool keeps(const char* what) const { return request_.keep.contains(what); }
  double trial_seconds() const { return kTrialShare * request_.budget; }
  double measuring() const;
  double step_tokens(const config::Config& config) const {
    return static_cast<double>(config.train.batch_size * config.model.context_length);
  }
  double rate(const config::Config& config) {
    return step_tokens(config) / ledger_.measure(config, measuring()).step_seconds;
  }
  void choose_vocabularies();
  void fit_size();
  void fit_batch();
  void run_trials();
  void run_stage(Trials& trials, Stage stage, bool last_preferred, const char* preference);
  double units() const;  // all trials take, of a training in a first round
  double unit() const { return (1.0 - kMeasuringShare) * trial_seconds() / units(); }  // its seconds
  void settle_run();
  void finish();

  const AdviseRequest& request_;
  const config::Config asked_;
  const tasks::Task& task_;
  Ledger ledger_;
  Runs runs_;
  config::Config config_;                   // as far as it is decided
  std::vector<std::int64_t> vocabularies_;  // to be tried
  TextSize text_;                           // in the tokens of config_
  Fitting fitting_;
  Advice advice_;
};

// Whether pieces are made from the text, so that there can be more or fewer of them.
bool makes_pieces(const config::Config& config) {
  const auto tokens = [](const std::vector<std::string>& files) {
    return std::any_of(files.begin(), files.end(), config::is_token_file);
  };
  return config.tokenizer.kind == config::TokenizerKind::sentencepiece && config.tokenizer.model.empty() &&
         config.data.generator == config::Generator::none && !tokens(config.data.train) &&
         !tokens(config.data.validation);
}

// Of the training text, at most so many.
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
  constexpr double kSpeeds = 12.0, kMost = 5.0;  // so many are measured, about
  return std::min(kMost, kMeasuringShare * trial_seconds() / kSpeeds);
}

// Of those that are tried, the config's own or, where the text is too small for it, the largest goes first.
void Adviser::choose_vocabularies() {
  const std::int64_t own = asked_.tokenizer.vocabulary_size;
  if (makes_pieces(asked_) && !keeps(kKeepVocabulary)) {
    constexpr double kEnough = 1000.0;  // bytes a piece, more than vocabulary_sizes() asks for
    vocabularies_ = vocabulary_sizes(own, text_bytes(asked_.data, kEnough * static_cast<double>(own)));
  }
  if (!vocabularies_.empty()) {
    const bool has_own = std::find(vocabularies_.begin(), vocabularies_.end(), own) != vocabularies_.end();
    config_ = with_vocabulary(asked_, has_own ? own : vocabularies_.back());
  }
  std::erase_if(vocabularies_, [&](std::int64_t size) {
    const config::Config other = with_vocabulary(asked_, size);
    try {
      config::check(other, "advise");
      text_size(other, request_.cache);
      return false;
    } catch (const UserError&) {
      if (size == config_.tokenizer.vocabulary_size) {
        throw;
      }
      return true;
    }
  });
  text_ = text_size(config_, request_.cache);
}

void Adviser::fit_size() {
  fitting_.rate = rate(config_);
  fitting_.size_kept = keeps(kKeepSize);
  std::vector<double> factors, forward;
  std::vector<config::Config> sizes;
  for (const double factor : size_factors()) {
    const std::optional<config::Config> other =
        fitting_.size_kept && factor != 1.0 ? std::nullopt : scaled(config_, factor);
    if (other && (factor == 1.0 || fits_machine(*other))) {
      factors.push_back(factor);
      forward.push_back(forward_macs(*other));
      sizes.push_back(*other);
    }
  }
  std::size_t at = static_cast<std::size_t>(std::find(factors.begin(), factors.end(), 1.0) - factors.begin());
  constexpr int kRounds = 3;  // a model of another size may well compute at another rate
  for (int round = 0; round < kRounds; ++round) {
    const double macs_a_second = 3.0 * forward[at] * rate(sizes[at]);
    const std::size_t fits =
        fitting_size(forward, macs_a_second * kRunShare * request_.budget, static_cast<double>(text_.training));
    if (fits == at) {
      break;
    }
    at = fits;
  }
  config_ = sizes[at];
  fitting_.size_factor = factors[at];
}

double Adviser::units() const {
  double all = halving_units(learning_rate_arms(config_).size()) + halving_units(vocabularies_.size());
  if (!request_.variants.empty()) {
    all += halving_units(variant_arms(config_, request_.variants).size());
  }
  if (request_.heads) {
    all += halving_units(head_arms(config_).size());
  }
  return all;
}

void Adviser::fit_batch() {
  fitting_.batch_kept = keeps(kKeepBatch);
  const std::int64_t own = config_.train.batch_size;
  if (fitting_.batch_kept) {
    return;
  }
  constexpr double kFewestTokens = 512.0, kBatchesAReading = 8.0;
  std::vector<config::Config> batches;
  std::vector<double> rates;
  for (const double factor : {0.125, 0.25, 0.5, 1.0, 2.0, 4.0}) {
    config::Config other = config_;
    other.train.batch_size = std::lround(static_cast<double>(own) * factor);
    const double tokens = step_tokens(other);
    const bool sensible = static_cast<double>(own) * factor >= 1.0 && tokens >= kFewestTokens &&
                          tokens * kBatchesAReading <= static_cast<double>(text_.training) &&
                          other.train.batch_size % other.train.accumulate == 0 && fits_machine(other);
    if (factor == 1.0 || sensible) {
      rates.push_back(rate(other));
      batches.push_back(std::move(other));
    }
  }
  std::size_t fits = fitting_batch(rates);
  constexpr double kRoom = 1.3;  // for what a trial does besides its steps
  while (fits > 0 && kRoom * static_cast<double>(kFewestSteps) * step_tokens(batches[fits]) / rates[fits] > unit()) {
    --fits;
  }
  config_ = batches[fits];
}

void Adviser::run_stage(Trials& trials, Stage stage, bool last_preferred, const char* preference) {
  if (stage.arms.size() < kFinalists) {
    return;
  }
  trials.carry_out(stage, last_preferred);
  const Arm& taken = stage.arms[stage.taken];
  if (!std::isfinite(taken.score())) {
    fail("advise: {}: every one that was tried diverged: try a lower train.learning_rate", stage.title);
  }
  config_ = taken.config;
  stage.sentence = stage_sentence(stage, preference);
  log_info("{}", stage.sentence);
  advice_.stages.push_back(std::move(stage));
}

void Adviser::run_trials() {
  constexpr double kForward = 3.0, kValidating = 1.0 / 7.0, kFewestTokens = 1024.0;
  Trials::Options options{.out = request_.out, .cache = request_.cache, .measuring = measuring()};
  options.unit = unit();
  const double validation = std::max(kFewestTokens, kForward * kValidating * options.unit * rate(config_));
  options.units = units();
  options.validation_fraction = std::min(1.0, validation / static_cast<double>(text_.validation));
  Trials trials(ledger_, runs_, std::move(options));
  Stage rates{.name = "learning_rate", .title = "Learning rate", .arms = learning_rate_arms(config_), .own = 2};
  if (const double least = trials.least_unit(rates.arms[rates.own]); unit() < least) {
    // A larger budget also asks for a larger model, whose steps take as much longer as the root of it.
    const double more = least / unit();
    const double budget = request_.budget * (fitting_.size_kept ? more : more * more);
    user_error(
        "advise: --budget: {} is too little: of its tenth, the smallest trial can have {}, and takes {}: ask for about "
        "{} "
        "at least, or a smaller model",
        format_duration(request_.budget), format_duration(unit()), format_duration(least), format_duration(budget));
  }
  run_stage(trials, std::move(rates), false, "the lower one is taken, since longer runs want lower rates");
  Stage vocabularies{.name = "vocabulary_size", .title = "Vocabulary", .arms = vocabulary_arms(config_, vocabularies_)};
  for (std::size_t i = 0; i < vocabularies.arms.size(); ++i) {
    vocabularies.own =
        vocabularies.arms[i].name == fmt::format("{}", config_.tokenizer.vocabulary_size) ? i : vocabularies.own;
  }
  run_stage(trials, std::move(vocabularies), true, "the larger one is taken, with which a context holds more text");
  if (!request_.variants.empty()) {
    run_stage(trials,
              {.name = "variant", .title = "Attention", .arms = variant_arms(config_, request_.variants), .own = 1},
              false, "the first of them is taken");
  }
  if (request_.heads) {
    run_stage(trials, {.name = "heads", .title = "Heads", .arms = head_arms(config_)}, false,
              "the first of them is taken");
  }
}

// How long the run is, and how often it is validated.
void Adviser::settle_run() {
  constexpr double kForward = 1.0 / 3.0, kValidating = 0.02, kValidations = 20.0;
  text_ = text_size(config_, request_.cache);
  advice_.tokens_per_second = rate(config_);
  const double affordable = advice_.tokens_per_second * kRunShare * request_.budget;
  const double tokens = std::min(affordable, kMostReadings * static_cast<double>(text_.training));
  const std::int64_t steps = std::max<std::int64_t>(1, rounded_down(tokens / step_tokens(config_)));
  Trials::set_steps(config_, steps);
  advice_.tokens = static_cast<double>(steps) * step_tokens(config_);
  advice_.readings = advice_.tokens / static_cast<double>(text_.training);
  if (advice_.readings > kReadingsWithoutDropout && config_.model.dropout == 0.0) {
    config_.model.dropout = kDropout;
    advice_.dropout_added = true;
  }
  const double validation = kForward * static_cast<double>(text_.validation) / advice_.tokens_per_second;
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
  fitting_.text_tokens = static_cast<double>(text_.training);
  fitting_.macs = forward_macs(config_);
  advice_.config = config_;
  advice_.parameters = cost::count_parameters(config_.model);
  advice_.spent = ledger_.spent();
  advice_.sentences = advice_sentences(advice_, fitting_);
  advice_.file = request_.out / kAdvisedFile;
  for (const Stage& stage : advice_.stages) {
    advice_.machine = stage.arms[stage.taken].rounds.back().trained.front().machine;
  }
  std::string remark = fmt::format("# Advised by {} for a budget of {}: {}\n", program(),
                                   format_duration(request_.budget), printable(request_.command));
  write_advised(config_, request_.config, remark, advice_.file);
  advice_.sentences.push_back(
      fmt::format("Train it with: headroom train {} --out {}", advice_.file.string(), (request_.out / "run").string()));
  advice_.report = request_.out / "report.html";
  write_text_file(advice_.report, render_report(advice_));
}

Advice Adviser::advise() {
  advice_.source = request_.config;
  advice_.budget = request_.budget;
  advice_.command = request_.command;
  choose_vocabularies();
  fit_size();
  fit_batch();
  run_trials();
  settle_run();
  finish();
  return std::move(advice_);
}

}  // namespace

Advice advise(const AdviseRequest& request) {
  config::Config asked = config::load_config(request.config, request.overrides);
  const tasks::Task& task = tasks::task_for(asked, "advise");
  const auto& figures = task.figures();
  if (std::none_of(figures.begin(), figures.end(), [](const auto& kind) { return kind.name == "bits_per_byte"; })) {
    user_error(
        "advise: {}: is for language models of text, whose losses are compared per byte, not for {}: sweep tries "
        "values of any config",
        request.config, task.name());
  }
  for (const std::string& variant : request.variants) {
    variant_arms(asked, {variant});  // before anything is measured
  }
  train::refuse_others(request.out, train::FolderKind::advice, "advice");
  const FolderLock lock(request.out);
  return Adviser(request, std::move(asked)).advise();
}

}  // namespace headroom::compare
