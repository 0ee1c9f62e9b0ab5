#include "study.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "foundation/core/text/format.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/store/checkpoint.h"
#include "training/train/loop/start.h"

namespace headroom::convert {
namespace {

namespace fs = std::filesystem;

constexpr double kLearningRate = 0.25;  // relative to the source's
constexpr double kWarmup = 0.1;         // as a fraction of the steps

struct Converted {
  std::string name;
  config::Config target;
  fs::path file, random;
};

// The source's config for more training, from the parameters in `start`.
config::Config continued(const config::Config& source, const fs::path& start, double share, bool taught,
                         const StudyRequest& request) {
  const config::ModelOptions model =
      store::read_checkpoint(store::find_checkpoint(start.string()), store::Check::shapes).config.model;
  config::Config config = source;
  config.model = model;
  config::TrainOptions& train = config.train;
  train.steps = std::max<std::int64_t>(1, std::llround(share * static_cast<double>(source.train.steps)));
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
      const Conversion made = convert_once(request, source, converted, false);
      convert_once(request, source, converted, true);
      study.before_training.push_back(
          fmt::format("Before training, {} has a loss of {} on held-out tokens, the source {}.", converted.name,
                      format_decimal(made.loss_after, 4), format_decimal(made.loss_before, 4)));
    }
    targets.push_back(std::move(converted));
  }
  for (const double share : request.shares) {
    const std::string at = fmt::format("-{:g}%", 100.0 * share);
    const auto add = [&](const std::string& name, const fs::path& start, bool taught) {
      study.runs.push_back({name + at, continued(source, start, share, taught, request)});
    };
    add("dense", request.source, false);
    add("dense-taught", request.source, true);
    for (const Converted& to : targets) {
      add(to.name, to.file, true);
      add(to.name + "-random", to.random, true);
      config::Config scratch = source;
      scratch.model = store::read_checkpoint(to.file, store::Check::shapes).config.model;
      scratch.train.steps += std::llround(share * static_cast<double>(source.train.steps));
      config::change(scratch, request.overrides, "--set");
      study.runs.push_back({to.name + "-scratch" + at, scratch});
    }
  }
  return study;
}

}  // namespace headroom::convert
