#include "study.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <utility>

#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/store/checkpoint.h"
#include "training/train/loop/start.h"

namespace headroom::convert {
namespace {

namespace fs = std::filesystem;

constexpr double kLearningRate = 0.25;  // of the source's
constexpr double kWarmup = 0.1;         // of the steps

struct Converted {
  std::string name;
  config::Config target;
  fs::path file, random;
};

std::int64_t steps_of(const config::Config& source, double share) {
  const std::int64_t steps = std::llround(share * static_cast<double>(source.train.steps));
  return share > 0.0 ? std::max<std::int64_t>(1, steps) : 0;
}

// The source's config for more training, from the parameters in `start`.
config::Config continued(const config::Config& source, const fs::path& start, double share, bool taught,
                         const StudyRequest& request) {
  const config::ModelOptions model =
      store::read_checkpoint(store::find_checkpoint(start.string()), store::Check::shapes).config.model;
  config::Config config = source;
  config.model = model;
  config::TrainOptions& train = config.train;
  train.steps = steps_of(source, share);
  train.warmup_steps = std::llround(kWarmup * static_cast<double>(train.steps));
  train.learning_rate *= kLearningRate;
  train.schedule = config::Schedule::linear;
  train.final_learning_rate = 0.0;
  train.start_from = fs::absolute(start).string();
  train.start_sha256.clear();
  if (taught) {
    train.teacher = fs::absolute(request.source).string();
  }
  config::change(config, request.overrides, "--set");
  config::check(config, "compare: --convert");
  return train::with_initial_parameters(config);
}

// The losses of a conversion on held-out tokens.
std::string losses_of(const fs::path& file) {
  const store::Checkpoint conversion = store::read_checkpoint(file, store::Check::shapes);
  const auto losses = conversion.metadata.find(kLosses);
  return losses == conversion.metadata.end() ? "an unrecorded loss" : "a loss of " + losses->second;
}

Conversion convert_once(const StudyRequest& request, const config::Config& source, const Converted& to, bool random) {
  return convert({.source = request.source,
                  .to = to.name,
                  .target = to.target,
                  .data = {},
                  .fit_steps = random ? 0 : ConvertRequest().fit_steps,
                  .random_attention = random,
                  .threads = source.train.threads,
                  .seed = static_cast<std::uint64_t>(source.train.seed),
                  .out = random ? to.random : to.file,
                  .cache = request.cache,
                  .command = request.command});
}

// Converts the source to each target, unless that has been done before. `losses` receives a sentence for each.
std::vector<Converted> convert_all(const StudyRequest& request, const config::Config& source,
                                   std::vector<std::string>& losses) {
  make_folder(request.out / "converted");
  std::vector<Converted> targets;
  std::set<std::string> names = {"dense", "dense-taught"};
  for (const std::string& to : request.targets) {
    Converted converted{
        .name = fs::path(to).stem().string(), .target = config::load_config(to), .file = {}, .random = {}};
    if (!names.insert(converted.name).second) {
      user_error("compare: --to: two runs are named {}; give the configs different file names", converted.name);
    }
    converted.file = request.out / "converted" / (converted.name + ".safetensors");
    converted.random = request.out / "converted" / (converted.name + "-random.safetensors");
    if (!fs::exists(converted.file) || !fs::exists(converted.random)) {
      convert_once(request, source, converted, false);
      convert_once(request, source, converted, true);
    }
    losses.push_back(fmt::format("{} without training: {}; with random parameters instead: {}.", converted.name,
                                 losses_of(converted.file), losses_of(converted.random)));
    targets.push_back(std::move(converted));
  }
  return targets;
}

// The runs of one share of the source's tokens, each of its own family.
std::vector<StudyRun> runs_of(double share, const config::Config& source, const std::vector<Converted>& targets,
                              const StudyRequest& request) {
  const bool trained = share > 0.0;
  std::vector<StudyRun> runs;
  const auto add = [&](const std::string& name, config::Config config) {
    runs.push_back({fmt::format("{}-{:g}%", name, 100.0 * share), std::move(config), name});
  };
  const std::string teacher = fs::absolute(request.source).string();
  const auto add_continued = [&](const std::string& name, const fs::path& start, bool taught) {
    config::Config config = continued(source, start, share, taught, request);
    if (config.train.teacher == teacher) {
      config.train.teacher_sha256 = runs.front().config.train.start_sha256;  // the dense model starts from the source
    }
    add(name, std::move(config));
  };
  add_continued("dense", request.source, false);
  if (trained) {
    add_continued("dense-taught", request.source, true);
  }
  for (const Converted& to : targets) {
    add_continued(to.name, to.file, trained);
    add_continued(to.name + "-random", to.random, trained);
    if (trained && request.scratch) {
      config::Config scratch = source;
      scratch.model = store::read_checkpoint(to.file, store::Check::shapes).config.model;
      scratch.train.steps += steps_of(source, share);
      config::change(scratch, request.overrides, "--set");
      add(to.name + "-scratch", std::move(scratch));
    }
  }
  return runs;
}

}  // namespace

Study plan_study(const StudyRequest& request) {
  const config::Config source =
      store::read_checkpoint(store::find_checkpoint(request.source), store::Check::shapes).config;
  Study study;
  const std::vector<Converted> targets = convert_all(request, source, study.before_training);
  // Without training last, because the first run is the baseline of the table.
  std::vector<double> shares = request.shares;
  const auto untrained = std::stable_partition(shares.begin(), shares.end(), [](double share) { return share > 0.0; });
  std::set<std::int64_t> steps;
  std::for_each(shares.begin(), untrained, [&](double share) { steps.insert(steps_of(source, share)); });
  const bool grouped = steps.size() > 1 && std::ssize(steps) == untrained - shares.begin();
  for (const double share : shares) {
    for (StudyRun& run : runs_of(share, source, targets, request)) {
      if (!grouped || share == 0.0) {
        run.family.clear();
      }
      study.runs.push_back(std::move(run));
    }
  }
  return study;
}

}  // namespace headroom::convert
