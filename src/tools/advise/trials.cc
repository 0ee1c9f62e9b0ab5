#include "trials.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <system_error>
#include <utility>
#include <vector>

#include "data/tokens/token_file.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/text/format.h"
#include "foundation/core/text/utf8.h"
#include "halving.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "tools/compare/figures/statistics.h"
#include "tools/compare/report/markup.h"
#include "tools/compare/run/plan.h"
#include "training/cost/cost.h"

namespace headroom::compare {
namespace {

namespace fs = std::filesystem;

// Of the steps, where the config has no warm-up of its own.
constexpr double kWarmupShare = 0.1;

double bits_per_byte(const TrainedRun& run) {
  return tasks::figure(run.result.figures(), "bits_per_byte");
}

std::string lower_case_first(std::string text) {
  text[0] = lower_case(text[0]);
  return text;
}

// Without the lines that a run begins with. The folder of all trials is locked, so no other process trains this one.
const TrainedRun& train_briefly(Runs& runs, const PlannedRun& run, const std::string& title) {
  const FewerLines brief;
  const TrainedRun* const trained = runs.train(run, title);
  if (trained == nullptr) {
    fail("{}: another process is at work there", run.folder.string());
  }
  return *trained;
}

std::vector<double> last_scores(const Stage& stage, const std::vector<std::size_t>& arms) {
  std::vector<double> scores;
  for (const std::size_t arm : arms) {
    scores.push_back(stage.arms[arm].score());
  }
  return scores;
}

std::vector<std::size_t> chosen_of(const std::vector<std::size_t>& from, const std::vector<std::size_t>& places) {
  std::vector<std::size_t> chosen;
  for (const std::size_t place : places) {
    chosen.push_back(from[place]);
  }
  return chosen;
}

std::string names_of(const Stage& stage, const std::vector<std::size_t>& arms) {
  std::vector<std::string> names;
  for (const std::size_t arm : arms) {
    names.push_back(stage.arms[arm].name);
  }
  return enumerated(names);
}

}  // namespace

double Arm::score() const {
  return rounds.empty() ? std::nan("") : mean(rounds.back().scores);
}

TextSize text_size(const config::Config& config, const fs::path& cache) {
  const data::PreparedData prepared = data::prepare_data(config.data, config.tokenizer, cache);
  const auto open = [](const data::PreparedPart& part) { return data::TokenFile(part.file, part.name, part.tokens); };
  TextSize size{.bytes = 0.0, .training = 0, .validation = open(prepared.validation).size()};
  for (const data::PreparedPart& corpus : prepared.train) {
    const data::TokenFile tokens = open(corpus);
    size.bytes += static_cast<double>(tokens.text_bytes());
    size.training += tokens.size();
  }
  return size;
}

void Trials::set_steps(config::Config& config, std::int64_t steps) {
  config::TrainOptions& train = config.train;
  const double share = train.warmup_steps > 0 && train.steps > 0
                           ? static_cast<double>(train.warmup_steps) / static_cast<double>(train.steps)
                           : kWarmupShare;
  train.steps = steps;
  train.warmup_steps = std::min<std::int64_t>(steps, std::lround(share * static_cast<double>(steps)));
}

const TextSize& Trials::text_of(const config::Config& config) {
  const auto [entry, is_new] = texts_.try_emplace(config.tokenizer.vocabulary_size);
  if (is_new) {
    entry->second = text_size(config, options_.cache);
  }
  return entry->second;
}

void Trials::measure(Arm& arm) {
  arm.step_seconds = ledger_.measure(arm.config, options_.measuring).step_seconds;
  arm.parameters = cost::count_parameters(arm.config.model);
}

// The same stretch of the text whatever it is cut into.
std::int64_t Trials::validation_tokens(const Arm& arm) {
  return std::lround(std::ceil(options_.validation_fraction * static_cast<double>(text_of(arm.config).validation)));
}

double Trials::overhead(const Arm& arm) {
  constexpr double kForward = 1.0 / 3.0;  // of a step's time
  const config::Config& config = arm.config;
  const auto tokens = static_cast<double>(config.train.batch_size * config.model.context_length);
  const double token_seconds = arm.step_seconds / tokens;
  return ledger_.measure(config, options_.measuring).start_seconds +
         kForward * token_seconds * static_cast<double>(validation_tokens(arm));
}

double Trials::least_unit(Arm arm) {
  measure(arm);
  return overhead(arm) + arm.step_seconds * static_cast<double>(kFewestSteps);
}

void Trials::train(const Stage& stage, Arm& arm, std::int64_t seed_index) {
  const std::int64_t steps = arm.rounds.back().steps;
  PlannedRun run{.values = {}, .config = arm.config, .folder = {}};
  set_steps(run.config, steps);
  config::TrainOptions& train = run.config.train;
  train.evaluate_tokens = options_.validation_fraction < 1.0 ? validation_tokens(arm) : 0;
  train.evaluate_every = train.checkpoint_every = train.sample_every = 0;
  train.keep_best = false;
  train.log_every = std::max<std::int64_t>(1, steps / 20);
  run.folder =
      options_.out / "trials" / stage.name / folder_name({{stage.name, arm.name}}) / fmt::format("steps_{}", steps);
  run = with_seed(run, seed_index);
  const auto start = std::chrono::steady_clock::now();
  const bool known = is_carried_out(run);
  const std::string seed = seed_index == 0 ? "" : fmt::format(", seed {}", run.config.train.seed);
  const std::string title = fmt::format("{} {}{}", lower_case_first(stage.title), arm.name, seed);
  const TrainedRun& trained = known ? *runs_.find(run) : train_briefly(runs_, run, title);
  if (trained.result.interrupted) {
    throw InterruptedError("advise: interrupted: the same command goes on from here");
  }
  if (!known) {
    std::error_code ignored;
    fs::remove_all(run.folder / "checkpoints", ignored);  // its figures are all that is asked for
    ledger_.spend(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  arm.rounds.back().trained.push_back(trained);
  arm.rounds.back().scores.push_back(trained.diverged.empty() ? bits_per_byte(trained) : std::nan(""));
  done_ += std::exp2(static_cast<double>(arm.rounds.size() - 1));
  const double score = arm.rounds.back().scores.back();
  log_info("{}: {} after {} steps; at most {} of trials left", title,
           std::isfinite(score) ? fmt::format("{:.3f} bits per byte", score) : "diverged", steps,
           format_duration(std::max(0.0, (options_.units - done_) * options_.unit)));
}

void Trials::carry_out(Stage& stage, bool last_preferred) {
  const double done_then = done_ + halving_units(stage.arms.size());
  for (Arm& arm : stage.arms) {
    measure(arm);
  }
  std::vector<std::size_t> left(stage.arms.size());
  std::iota(left.begin(), left.end(), std::size_t{0});
  double length = options_.unit;
  const std::vector<std::size_t> sizes = round_sizes(stage.arms.size());
  for (std::size_t round = 0; round < sizes.size(); ++round, length *= 2.0) {
    if (round > 0) {
      left = chosen_of(left, survivors(last_scores(stage, left), sizes[round]));
    }
    log_info("{}, round {} of {}: {}", stage.title, round + 1, sizes.size(), names_of(stage, left));
    for (const std::size_t place : left) {
      Arm& arm = stage.arms[place];
      const double steps = std::floor((length - overhead(arm)) / arm.step_seconds);
      arm.rounds.push_back({.steps = std::max(kFewestSteps, static_cast<std::int64_t>(steps))});
      train(stage, arm, 0);
    }
  }
  settle(stage, left, last_preferred);
  done_ = done_then;
}

// Of the last two the better one; several seeds where they are close.
void Trials::settle(Stage& stage, std::vector<std::size_t> finalists, bool last_preferred) {
  if (last_preferred) {
    std::swap(finalists[0], finalists[1]);
  }
  Arm &first = stage.arms[finalists[0]], &second = stage.arms[finalists[1]];
  if (are_close(first.score(), second.score())) {
    log_info("{}: {} and {} are close: {} seeds of each", stage.title, first.name, second.name, kSeedsOfClose);
    for (std::int64_t index = 1; index < kSeedsOfClose; ++index) {
      train(stage, first, index);
      train(stage, second, index);
    }
  }
  const Verdict verdict = decide(first.rounds.back().scores, second.rounds.back().scores);
  stage.taken = finalists[verdict.second ? 1 : 0];
  stage.open = verdict.open;
}

}  // namespace headroom::compare
