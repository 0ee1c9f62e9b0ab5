#include "trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/text/format.h"
#include "foundation/core/transformed.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/store/checkpoint.h"
#include "tools/compare/run/checks.h"
#include "tools/compare/run/execution.h"
#include "training/train/loop/step_time.h"

namespace headroom::trial {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kFirstBaseRuns = 3;
constexpr std::size_t kMostRates = 6;     // the most learning rates tried for one side
constexpr std::size_t kLongestName = 60;  // of a config in a folder's name, bytes

// Returns an infinitely bad figure for a run that diverged or has no finite validation result.
double figure_of(const compare::TrainedRun& run, const tasks::FigureKind& kind) {
  const double worst = kind.better == tasks::Better::higher ? -std::numeric_limits<double>::infinity()
                                                            : std::numeric_limits<double>::infinity();
  const double value = run.diverged.empty() ? tasks::figure(run.result.figures(), kind.name) : worst;
  return std::isfinite(value) ? value : worst;
}

// Returns the loss if the headline is a function of it, because the test assumes roughly normal differences.
const tasks::FigureKind& compared_figure(const tasks::Task& task) {
  const std::vector<tasks::FigureKind>& kinds = task.figures();
  const tasks::FigureKind& headline = tasks::headline(kinds);
  return headline.name == "perplexity" || headline.name == "bits_per_byte" ? kinds.front() : headline;
}

// Identifies a config by its values, without the seed and the keys that do not affect the trained parameters.
std::string content_hash(const config::Config& config) {
  Sha256 sum;
  for (const auto& [key, value] : config::flatten(config)) {
    if (key != "train.seed" && !compare::is_bookkeeping(key)) {
      sum.update(fmt::format("{} = {}\n", key, value));
    }
  }
  return sum.hex().substr(0, 12);
}

std::vector<std::string> changed_keys(const config::Config& base, const config::Config& change) {
  const auto before = config::flatten(base), after = config::flatten(change);
  std::vector<std::string> changed;
  for (std::size_t i = 0; i < before.size(); ++i) {
    const auto& [key, value] = before[i];
    if (value == after[i].second) {
      continue;
    }
    if (key.starts_with("data.") || key.starts_with("tokenizer.")) {
      user_error(
          "try: {}: is {} in the base and {} in the change, so their figures cannot be compared; a change may not "
          "change the data or the tokenizer",
          key, value, after[i].second);
    }
    if (key == "train.seed" || key == "train.seconds") {
      user_error("try: {}: is {} in the base and {} in the change; set it for both, with --both{}", key, value,
                 after[i].second, key == "train.seed" ? ", or give the change other seeds, with --change-seed N" : "");
    }
    changed.push_back(fmt::format("{}: {} -> {}", key, value, after[i].second));
  }
  return changed;
}

// One side of a trial.
struct Side {
  compare::NamedConfig named;
  std::int64_t first_seed = 1;
  double seconds = 0.0;  // of its longest new run; 0: none yet

  compare::PlannedRun run(std::int64_t seed, const fs::path& out) const {
    compare::PlannedRun planned{.values = {}, .config = named.config, .folder = {}};
    planned.config.train.seed = seed;
    planned.folder =
        out / "runs" /
        fmt::format("{}-{}", compare::plain_name(named.name).substr(0, kLongestName), content_hash(named.config)) /
        fmt::format("seed_{}", seed);
    return planned;
  }
};

struct Interrupted {};
struct BudgetSpent {};

class Trainer {
 public:
  // `data` identifies the data that new runs would be trained on; finished runs of other data are refused.
  Trainer(const TrialRequest& request, const tasks::Task& task, train::RunData data)
      : request_(request),
        data_(std::move(data)),
        figure_(compared_figure(task)),
        runs_(task, request.cache, request.group),
        end_(Clock::now() +
             std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(request.budget))) {}

  // Trains the run, or reads it if it has been trained. Throws BudgetSpent if it is new and would end too late, judging
  // by the longest run so far.
  const compare::TrainedRun& train(Side& side, std::int64_t seed) {
    const compare::PlannedRun run = same_content(side.run(seed, request_.out));
    if (const compare::TrainedRun* found = runs_.find(run)) {
      compare::check_unchanged_data(run.folder, data_);
      reused_ += counted_.insert(run.folder).second ? 1 : 0;
      return *found;
    }
    const double expected = side.seconds > 0.0 ? side.seconds : longest_;
    if (longest_ > 0.0 && Clock::now() + std::chrono::duration<double>(expected) > end_) {
      throw BudgetSpent();
    }
    if (longest_ == 0.0) {
      require_time_for(run, side.named.name);
    }
    const auto begun = Clock::now();
    const FewerLines brief;
    const compare::TrainedRun& trained = runs_.train(run, fmt::format("{}, seed {}", side.named.name, seed));
    if (trained.result.interrupted) {
      throw Interrupted();
    }
    side.seconds = std::max(side.seconds, std::chrono::duration<double>(Clock::now() - begun).count());
    longest_ = std::max(longest_, side.seconds);
    counted_.insert(run.folder);
    ++trained_;
    return trained;
  }

  double figure(Side& side, std::int64_t seed) { return figure_of(train(side, seed), figure_); }

  const tasks::FigureKind& figure_kind() const { return figure_; }
  double longest() const { return longest_; }
  std::int64_t trained() const { return trained_; }
  std::int64_t reused() const { return reused_; }

 private:
  // Throws UserError if this run alone takes longer than the budget, judging by its first steps.
  void require_time_for(const compare::PlannedRun& run, const std::string& name) const {
    constexpr double kMeasuring = 0.2;  // seconds
    const config::TrainOptions& train = run.config.train;
    if (store::has_checkpoints(run.folder)) {  // an unfinished run, which needs less
      return;
    }
    const double expected = train.seconds > 0.0
                                ? train.seconds
                                : static_cast<double>(train.steps) *
                                      train::measure_step_time(run.config, request_.cache, kMeasuring, "try");
    if (expected > request_.budget) {
      user_error("try: --budget: {} is shorter than one run of {}, about {}; ask for more, or set --both train.steps=N",
                 format_duration(request_.budget), name, format_duration(expected));
    }
  }

  // A config with the same content may have been trained under another name.
  compare::PlannedRun same_content(compare::PlannedRun run) const {
    const std::string hash = content_hash(run.config), seed = run.folder.filename().string();
    std::error_code ignored;
    for (const fs::directory_entry& folder : fs::directory_iterator(request_.out / "runs", ignored)) {
      const std::string name = folder.path().filename().string();
      if (name.ends_with("-" + hash) && compare::is_finished({{}, run.config, folder.path() / seed})) {
        run.folder = folder.path() / seed;
        break;
      }
    }
    return run;
  }

  const TrialRequest& request_;
  train::RunData data_;
  const tasks::FigureKind& figure_;
  compare::Runs runs_;
  Clock::time_point end_;
  std::set<fs::path> counted_;
  double longest_ = 0.0;
  std::int64_t trained_ = 0, reused_ = 0;
};

// Searches the side's learning rate: half, one and two times the given rate, and further as long as the best rate is at
// an edge.
void tune(Side& side, Trainer& trainer) {
  const double given = side.named.config.train.learning_rate;
  std::map<double, double> tried;
  const auto better = [&](double one, double other) { return compare::is_better(trainer.figure_kind(), one, other); };
  double best = given;
  std::vector<double> next = {given, 0.5 * given, 2.0 * given};
  while (!next.empty() && tried.size() < kMostRates) {
    for (const double rate : std::exchange(next, {})) {
      Side candidate = side;
      candidate.named.config.train.learning_rate = rate;
      tried[rate] = trainer.figure(candidate, side.first_seed);
      side.seconds = std::max(side.seconds, candidate.seconds);
      best = better(tried[rate], tried[best]) ? rate : best;
    }
    if (best == tried.begin()->first || !std::isfinite(tried[best])) {
      next = {0.5 * tried.begin()->first};
    } else if (best == tried.rbegin()->first) {
      next = {2.0 * best};
    }
  }
  side.named.config.train.learning_rate = best;
  if (!std::isfinite(tried[best])) {
    log_warning("try: {}: diverged with all {} learning rates that were tried, {} to {}", side.named.name, tried.size(),
                tried.begin()->first, tried.rbegin()->first);
  } else if (!next.empty()) {
    log_warning("try: {}: the best learning rate, {}, is at the edge of the {} that were tried, {} to {}",
                side.named.name, best, tried.size(), tried.begin()->first, tried.rbegin()->first);
  }
}

// Checks the request. Returns the data, which both sides share.
train::RunData check_request(const TrialRequest& request, const tasks::Task& task) {
  compare::Plan plan{.models = {}, .variations = {}, .seeds = 1, .command = "try"};
  for (const compare::NamedConfig* named : {&request.base, &request.change}) {
    plan.models.push_back({named->name, {{.values = {}, .config = named->config, .folder = request.out}}});
  }
  compare::check_choices(plan);
  return compare::check_runs(plan, {}, task, request.cache);
}

// The test takes pairs as independent, so a seed may be in one pair only.
void check_seeds(const TrialRequest& request) {
  const std::int64_t base = request.base.config.train.seed, change = request.change_seed.value_or(base);
  const std::int64_t needed = request.test.pairs + (request.tune ? 1 : 0);
  if (const std::int64_t first = std::max(base, change); first > compare::kMostSeed - needed + 1) {
    user_error("try: {}: the last of {} seeds from {} is above {}", change > base ? "--change-seed" : "train.seed",
               needed, first, compare::kMostSeed);
  }
  if (change != base && std::abs(change - base) < needed) {
    user_error(
        "try: --change-seed: {} shares seeds with the base, whose {} runs have the seeds {} to {}, so the pairs would "
        "not be independent; give {} or more",
        change, needed, base, base + needed - 1, base + needed);
  }
}

std::vector<double> differences_of(const Trial& trial) {
  const double sign = trial.figure.better == tasks::Better::higher ? -1.0 : 1.0;  // negative: the change is better
  return transformed(trial.pairs, [&](const Pair& pair) { return sign * (pair.change - pair.base); });
}

compare::Interval interval_of(const Trial& trial, const TestOptions& options) {
  compare::Interval found = interval(differences_of(trial), options);
  if (trial.pairs.size() > 1) {
    found = compare::within(found, trial.figure.range);
  }
  return trial.figure.better == tasks::Better::higher
             ? compare::Interval{.mean = -found.mean, .low = -found.high, .high = -found.low}
             : found;
}

// Trains and appends pairs until the trial is decided.
void train_pairs(const TrialRequest& request, Side& base, Side& change, Trainer& trainer, Trial& trial) {
  std::vector<const compare::TrainedRun*> base_runs;  // owned by `trainer`
  std::vector<double> base_figures;
  const auto base_run = [&](int n) -> const compare::TrainedRun& {
    while (static_cast<int>(base_runs.size()) <= n) {
      const std::int64_t seed = base.first_seed + static_cast<std::int64_t>(base_runs.size());
      const compare::TrainedRun& run = trainer.train(base, seed);
      base_figures.push_back(figure_of(run, trial.figure));
      if (!std::isfinite(base_figures.back())) {
        user_error("try: {}: the base has no figure with seed {}{}; nothing can be compared with it", trial.base, seed,
                   run.diverged.empty() ? "" : ", it diverged");
      }
      base_runs.push_back(&run);
    }
    return *base_runs[static_cast<std::size_t>(n)];
  };
  base_run(std::min(kFirstBaseRuns, request.test.pairs) - 1);
  for (int n = 0; n < request.test.pairs && trial.decision == Decision::undecided; ++n) {
    Pair pair{.base_seed = base.first_seed + n, .change_seed = change.first_seed + n};
    const compare::TrainedRun& unchanged = base_run(n);
    pair.base_sha256 = unchanged.result.parameters_sha256;
    pair.base_steps = unchanged.result.steps;
    pair.base = base_figures[static_cast<std::size_t>(n)];
    const compare::TrainedRun& changed = trainer.train(change, pair.change_seed);
    pair.change = figure_of(changed, trial.figure);
    pair.change_sha256 = changed.result.parameters_sha256;
    pair.change_steps = changed.result.steps;
    trial.pairs.push_back(std::move(pair));
    trial.decision = has_no_effect(trial)
                         ? Decision::discard
                         : decide(differences_of(trial), compare::sample_deviation(base_figures), request.test);
  }
}

}  // namespace

Trial run_trial(const TrialRequest& request) {
  Trial trial{.base = request.base.name, .change = request.change.name};
  trial.changed = changed_keys(request.base.config, request.change.config);
  const tasks::Task& task = tasks::task_for(request.base.config, "try");
  const bool leads = request.group->leads();
  check_seeds(request);
  train::RunData data;
  std::unique_ptr<FolderLock> lock;
  if (leads) {
    lock = std::make_unique<FolderLock>(request.out);
    data = check_request(request, task);
    make_folder(request.out / "runs");
    require_appendable(request.out);
  }
  request.group->gather("");  // no rank trains before the checks have passed
  Trainer trainer(request, task, std::move(data));
  trial.figure = trainer.figure_kind();
  Side base{.named = request.base, .first_seed = request.base.config.train.seed};
  Side change{.named = request.change, .first_seed = request.change_seed.value_or(base.first_seed)};
  try {
    if (request.tune) {
      tune(base, trainer);
      tune(change, trainer);
      ++base.first_seed;  // a seed that has selected a learning rate is not used for the comparison
      ++change.first_seed;
    }
    train_pairs(request, base, change, trainer, trial);
  } catch (const BudgetSpent&) {
    if (trial.pairs.empty()) {
      const double runs = 1.0 + kFirstBaseRuns + (request.tune ? 2.0 * kMostRates : 0.0);
      user_error(
          "try: --budget: {} is too short for one pair, a run takes {}; ask for {} or more (finished runs are kept)",
          format_duration(request.budget), format_duration(trainer.longest()),
          format_duration(std::ceil(runs * trainer.longest())));
    }
  } catch (const Interrupted&) {
    trial.interrupted = true;
  }
  trial.trained = trainer.trained();
  trial.reused = trainer.reused();
  trial.base_learning_rate = base.named.config.train.learning_rate;
  trial.change_learning_rate = change.named.config.train.learning_rate;
  if (trial.interrupted) {
    return trial;
  }
  trial.difference = interval_of(trial, request.test);
  trial.sentence = sentence_of(trial, request);
  if (leads) {
    append_record(trial, request);
  }
  return trial;
}

double level_after(int n, const TestOptions& options) {
  if (n < 2) {
    return 0.0;
  }
  const int earlier = options.pairs - 2;  // tests before the last
  return n < options.pairs ? 0.5 * options.false_keep_rate / earlier
                           : (earlier > 0 ? 0.5 : 1.0) * options.false_keep_rate;
}

compare::Interval interval(const std::vector<double>& differences, const TestOptions& options) {
  const int n = static_cast<int>(differences.size());
  const double middle = compare::mean(differences);
  double reach = std::numeric_limits<double>::infinity();
  if (n > 1) {
    reach = compare::student_quantile(1.0 - level_after(n, options), n - 1) * compare::sample_deviation(differences) /
            std::sqrt(static_cast<double>(n));
  }
  return {.mean = middle, .low = middle - reach, .high = middle + reach};
}

Decision decide(const std::vector<double>& differences, double base_deviation, const TestOptions& options) {
  if (!std::ranges::all_of(differences, [](double d) { return std::isfinite(d); })) {
    return Decision::discard;
  }
  const compare::Interval found = interval(differences, options);
  if (found.high < 0.0) {
    return Decision::keep;
  }
  const double tolerated =
      std::isfinite(base_deviation) ? kHopeless * base_deviation / static_cast<double>(differences.size()) : 0.0;
  return found.mean > tolerated ? Decision::discard : Decision::undecided;
}

}  // namespace headroom::trial
