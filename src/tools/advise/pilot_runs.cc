#include "pilot_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "data/tokens/token_file.h"
#include "findings.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/text/format.h"
#include "foundation/core/text/utf8.h"
#include "foundation/core/transformed.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "tools/compare/figures/statistics.h"
#include "tools/compare/report/formatting.h"
#include "tools/compare/run/checks.h"
#include "tools/compare/run/plan.h"
#include "training/cost/cost.h"
#include "training/tasks/task.h"
#include "training/train/loop/start.h"
#include "training/train/loop/step_time.h"

namespace headroom::advise {

namespace {

constexpr const char* kFormat = "headroom.advice.1";

// A hash of the config without the keys that do not affect the time of a step.
std::string speed_key(const config::Config& config) {
  config::Config rest = config;
  const config::TrainOptions defaults;
  rest.train.learning_rate = defaults.learning_rate;
  rest.train.steps = defaults.steps;
  rest.train.warmup_steps = defaults.warmup_steps;
  rest.train.seed = defaults.seed;
  rest.train.evaluate_tokens = defaults.evaluate_tokens;
  return sha256_of(config::to_toml(rest)).substr(0, 16);
}

double positive(const Json& json, const char* key) {
  const double number = json.at(key).get<double>();
  if (!std::isfinite(number) || number < 0.0) {
    throw Json::other_error::create(501, key, nullptr);
  }
  return number;
}

// Describes how two requests differ: "budget_seconds is 60.0 there, 90.0 here". Empty if they are equal. Before the
// first pilot run only the config counts: the measured speeds depend on nothing else.
std::string request_difference(const Json& there, const Json& here, bool has_pilot_runs) {
  const std::string text = there.at("config").get<std::string>();
  if (std::string difference =
          compare::first_difference(config::parse_config(text, "the recorded config"),
                                    config::parse_config(here.at("config").get<std::string>(), "advise"));
      !difference.empty()) {
    return difference;
  }
  for (const auto& [key, value] : here.items()) {
    if (key != "config" && there.at(key) != value && has_pilot_runs) {
      return fmt::format("{} is {} there, {} here", key, to_json_line(there.at(key)), to_json_line(value));
    }
  }
  return "";
}

}  // namespace

Budget::Budget(const AdviseRequest& request, const config::Config& asked)
    : file_(request.out / train::kAdviceFile),
      cache_(request.cache),
      measure_(request.measure),
      request_({{"config", config::to_toml(asked)},
                {"budget_seconds", request.budget},
                {"variants", request.variants},
                {"heads", request.heads},
                {"keep", request.keep}}) {
  if (std::filesystem::exists(file_)) {
    read();
  }
}

train::StepTime Budget::measure(const config::Config& config, double seconds) {
  const std::string key = speed_key(config);
  if (const auto found = measured_.find(key); found != measured_.end()) {
    return found->second;
  }
  const auto start = std::chrono::steady_clock::now();
  measured_[key] = measure_ ? measure_(config) : train::measure_step_time(config, cache_, seconds, "advise");
  spend(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  return measured_[key];
}

void Budget::spend(double seconds) {
  spent_ += seconds;
  write();
}

void Budget::read() {
  const Json json = parse_json(read_text_file(file_), file_.string());
  std::string difference;
  try {
    if (json.at("format") != kFormat) {
      throw Json::other_error::create(501, "format", nullptr);
    }
    difference =
        request_difference(json.at("request"), request_, std::filesystem::exists(file_.parent_path() / kPilotFolder));
    spent_ = positive(json, "spent_seconds");
    for (const auto& [key, entry] : json.at("measured").items()) {
      measured_[key] = {.step_seconds = positive(entry, "step_seconds"),
                        .start_seconds = positive(entry, "start_seconds")};
    }
  } catch (const Json::exception&) {
    user_error("{}: is not a valid record of advise; remove it to start again", file_.string());
  }
  if (!difference.empty()) {
    user_error("advise: --out: {} holds advice on another request ({}); choose another folder or remove it",
               file_.parent_path().string(), difference);
  }
}

void Budget::write() const {
  Json measured = Json::object();
  for (const auto& [key, entry] : measured_) {
    measured[key] = {{"step_seconds", entry.step_seconds}, {"start_seconds", entry.start_seconds}};
  }
  write_text_file(
      file_,
      to_json_line(
          {{"format", kFormat}, {"request", request_}, {"spent_seconds", spent_}, {"measured", std::move(measured)}}) +
          "\n");
}

std::vector<std::size_t> round_sizes(std::size_t candidates) {
  std::vector<std::size_t> sizes;
  for (; candidates > kFinalists; candidates = (candidates + 1) / 2) {
    sizes.push_back(candidates);
  }
  if (candidates == kFinalists) {
    sizes.push_back(candidates);
  }
  return sizes;
}

double halving_units(std::size_t candidates) {
  double units = 0.0, length = 1.0;
  const std::vector<std::size_t> sizes = round_sizes(candidates);
  for (std::size_t round = 0; round < sizes.size(); ++round, length *= 2.0) {
    const bool last = round + 1 == sizes.size();
    units += length * static_cast<double>(sizes[round]) * (last ? static_cast<double>(kSeedsOfClose) : 1.0);
  }
  return units;
}

std::vector<std::size_t> survivors(const std::vector<double>& scores, std::size_t keep) {
  std::vector<std::size_t> places(scores.size());
  std::iota(places.begin(), places.end(), std::size_t{0});
  std::ranges::stable_sort(places, [&](std::size_t a, std::size_t b) {
    const bool finite = std::isfinite(scores[a]), other = std::isfinite(scores[b]);
    return finite && other ? scores[a] < scores[b] : finite && !other;
  });
  places.resize(std::min(keep, places.size()));
  std::ranges::sort(places);
  return places;
}

bool are_close(double one, double other) {
  constexpr double kClose = 0.01;
  return std::isfinite(one) && std::isfinite(other) && std::abs(one - other) <= kClose * std::min(one, other);
}

Verdict decide(const std::vector<double>& first, const std::vector<double>& second) {
  if (first.size() > 1 && second.size() > 1) {
    const std::optional<compare::Interval> difference = compare::paired_difference(second, first);
    if (difference && !difference->excludes_zero()) {
      return {.second = false, .open = true};
    }
  }
  const double one = compare::mean(first), other = compare::mean(second);
  return {.second = std::isfinite(other) && !(one <= other)};
}

namespace {

namespace fs = std::filesystem;

std::string lower_case_first(std::string text) {
  text[0] = lower_case(text[0]);
  return text;
}

// Trains without the log lines at the start of a run.
const compare::TrainedRun& train_pilot(compare::Runs& runs, const compare::PlannedRun& run, const std::string& title) {
  const FewerLines brief;
  return runs.train(run, title);
}

std::vector<double> last_scores(const Stage& stage, const std::vector<std::size_t>& candidates) {
  return transformed(candidates, [&](const std::size_t candidate) { return stage.candidates[candidate].score(); });
}

std::vector<std::size_t> chosen_of(const std::vector<std::size_t>& from, const std::vector<std::size_t>& places) {
  return transformed(places, [&](const std::size_t place) { return from[place]; });
}

std::string names_of(const Stage& stage, const std::vector<std::size_t>& candidates) {
  std::vector<std::string> names =
      transformed(candidates, [&](const std::size_t candidate) { return stage.candidates[candidate].name; });
  return compare::enumerated(names);
}

}  // namespace

double Candidate::score() const {
  return rounds.empty() ? std::nan("") : compare::mean(rounds.back().scores);
}

DataSize data_size(const config::Config& config, const fs::path& cache) {
  const tasks::TaskData data = tasks::task_for(config, "advise").open(config, cache);
  if (config.data.synthetic != config::Synthetic::none) {
    const std::int64_t rows = config.data.generated_train, length = config.model.context_length;
    return {.training = rows > 0 ? rows * length : std::numeric_limits<std::int64_t>::max(),
            .validation = std::lround(data.validation->rows(config, 0)) * length,
            .data = train::run_data(data)};
  }
  const data::PreparedData prepared = data::prepare_data(config.data, config.tokenizer, cache);
  const auto open = [](const data::PreparedPart& part) { return data::TokenFile(part.file, part.name, part.parts); };
  DataSize size{.training = 0, .validation = open(prepared.validation).size(), .data = train::run_data(data)};
  for (const data::PreparedPart& corpus : prepared.train) {
    const data::TokenFile tokens = open(corpus);
    size.training += tokens.size();
  }
  return size;
}

const DataSize& PilotRuns::data_of(const config::Config& config) {
  const auto [entry, is_new] = data_.try_emplace(config.tokenizer.vocabulary_size);
  if (is_new) {
    entry->second = data_size(config, options_.cache);
  }
  return entry->second;
}

void PilotRuns::measure(Candidate& candidate) {
  candidate.step_seconds = budget_.measure(candidate.config, options_.measuring).step_seconds;
  candidate.parameters = cost::count_parameters(candidate.config.model);
}

// Every tokenizer gets the same share of the text.
std::int64_t PilotRuns::validation_tokens(const Candidate& candidate) {
  return std::lround(
      std::ceil(options_.validation_fraction * static_cast<double>(data_of(candidate.config).validation)));
}

double PilotRuns::overhead(const Candidate& candidate) {
  const config::Config& config = candidate.config;
  const auto tokens = static_cast<double>(config.train.batch_size * config.model.context_length);
  const double token_seconds = candidate.step_seconds / tokens;
  return budget_.measure(config, options_.measuring).start_seconds +
         kForwardShare * token_seconds * static_cast<double>(validation_tokens(candidate));
}

void PilotRuns::train(const Stage& stage, Candidate& candidate, std::int64_t seed_index) {
  const std::int64_t steps = candidate.rounds.back().steps;
  compare::PlannedRun run{.values = {}, .config = candidate.config, .folder = {}};
  train::set_steps(run.config.train, steps, kWarmupShare);
  config::TrainOptions& train = run.config.train;
  train.evaluate_tokens = options_.validation_fraction < 1.0 ? validation_tokens(candidate) : 0;
  train.evaluate_every = train.checkpoint_every = train.sample_every = 0;
  train.keep_best = false;
  train.log_every = std::max<std::int64_t>(1, steps / 20);
  run.folder = options_.out / kPilotFolder / stage.name / compare::folder_name({{stage.name, candidate.name}}) /
               fmt::format("steps_{}", steps);
  run = compare::with_seed(run, seed_index);
  const auto start = std::chrono::steady_clock::now();
  const bool known = compare::is_finished(run);
  if (known) {
    compare::check_unchanged_data(run.folder, data_of(candidate.config).data);
  }
  const std::string seed = seed_index == 0 ? "" : fmt::format(", seed {}", run.config.train.seed);
  const std::string title = fmt::format("{} {}{}", lower_case_first(stage.title), candidate.name, seed);
  const compare::TrainedRun& trained = known ? *runs_.find(run) : train_pilot(runs_, run, title);
  if (trained.result.interrupted) {
    throw InterruptedError("advise: interrupted; the same command continues from here");
  }
  if (!known) {
    std::error_code ignored;
    fs::remove_all(run.folder / "checkpoints", ignored);  // only the logged figures are needed
    budget_.spend(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  candidate.rounds.back().trained.push_back(trained);
  candidate.rounds.back().scores.push_back(
      trained.diverged.empty() ? tasks::figure(trained.result.figures(), stage.measure.figure) : std::nan(""));
  done_ += std::exp2(static_cast<double>(candidate.rounds.size() - 1));
  const double score = candidate.rounds.back().scores.back();
  log_info("{}: {} after {} steps; at most {} of pilot runs left", title,
           std::isfinite(score) ? fmt::format("{} {}", short_score(score), stage.measure.unit) : "diverged", steps,
           format_duration(std::max(0.0, (options_.units - done_) * options_.unit)));
}

void PilotRuns::run(Stage& stage, bool last_preferred) {
  const double done_then = done_ + halving_units(stage.candidates.size());
  for (Candidate& candidate : stage.candidates) {
    measure(candidate);
  }
  std::vector<std::size_t> left(stage.candidates.size());
  std::iota(left.begin(), left.end(), std::size_t{0});
  double length = options_.unit;
  const std::vector<std::size_t> sizes = round_sizes(stage.candidates.size());
  for (std::size_t round = 0; round < sizes.size(); ++round, length *= 2.0) {
    if (round > 0) {
      left = chosen_of(left, survivors(last_scores(stage, left), sizes[round]));
    }
    log_info("{}, round {} of {}: {}", stage.title, round + 1, sizes.size(), names_of(stage, left));
    for (const std::size_t place : left) {
      Candidate& candidate = stage.candidates[place];
      const double steps = std::floor((length - overhead(candidate)) / candidate.step_seconds);
      candidate.rounds.push_back({.steps = std::max(kFewestSteps, static_cast<std::int64_t>(steps))});
      train(stage, candidate, 0);
    }
  }
  settle(stage, left, last_preferred);
  done_ = done_then;
}

// Chooses the better of the finalists, with several seeds if their scores are close.
void PilotRuns::settle(Stage& stage, std::vector<std::size_t> finalists, bool last_preferred) {
  if (last_preferred) {
    std::swap(finalists[0], finalists[1]);
  }
  Candidate &first = stage.candidates[finalists[0]], &second = stage.candidates[finalists[1]];
  if (are_close(first.score(), second.score())) {
    log_info("{}: {} and {} are close; training {} seeds of each", stage.title, first.name, second.name, kSeedsOfClose);
    for (std::int64_t index = 1; index < kSeedsOfClose; ++index) {
      train(stage, first, index);
      train(stage, second, index);
    }
  }
  const Verdict verdict = decide(first.rounds.back().scores, second.rounds.back().scores);
  stage.taken = finalists[verdict.second ? 1 : 0];
  stage.open = verdict.open;
}

}  // namespace headroom::advise
