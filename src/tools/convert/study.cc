#include "study.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
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

}  // namespace

Study plan_study(const StudyRequest& request) {
  const config::Config source =
      store::read_checkpoint(store::find_checkpoint(request.source), store::Check::shapes).config;
  make_folder(request.out / "converted");
  std::vector<Converted> targets;
  std::set<std::string> names = {"dense", "dense-taught"};
  Study study;
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
    study.before_training.push_back(fmt::format("{} without training: {}; with random parameters instead: {}.",
                                                converted.name, losses_of(converted.file),
                                                losses_of(converted.random)));
    targets.push_back(std::move(converted));
  }
  // Without training last, because the first run is the baseline of the table.
  std::vector<double> shares = request.shares;
  const auto untrained = std::stable_partition(shares.begin(), shares.end(), [](double share) { return share > 0.0; });
  std::set<std::int64_t> steps;
  std::for_each(shares.begin(), untrained, [&](double share) { steps.insert(steps_of(source, share)); });
  const bool grouped = steps.size() > 1 && std::ssize(steps) == untrained - shares.begin();
  for (const double share : shares) {
    const auto add_run = [&](const std::string& name, config::Config config) {
      study.runs.push_back({fmt::format("{}-{:g}%", name, 100.0 * share), std::move(config),
                            grouped && share > 0.0 ? name : std::string()});
    };
    const auto add = [&](const std::string& name, const fs::path& start, bool taught) {
      add_run(name, continued(source, start, share, taught, request));
    };
    add("dense", request.source, false);
    if (share == 0.0) {
      for (const Converted& to : targets) {
        add(to.name, to.file, false);
        add(to.name + "-random", to.random, false);
      }
      continue;
    }
    add("dense-taught", request.source, true);
    for (const Converted& to : targets) {
      add(to.name, to.file, true);
      add(to.name + "-random", to.random, true);
      if (!request.scratch) {
        continue;
      }
      config::Config scratch = source;
      scratch.model = store::read_checkpoint(to.file, store::Check::shapes).config.model;
      scratch.train.steps += steps_of(source, share);
      config::change(scratch, request.overrides, "--set");
      add_run(to.name + "-scratch", std::move(scratch));
    }
  }
  return study;
}

}  // namespace headroom::convert
