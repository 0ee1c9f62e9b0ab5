#include "convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <utility>

#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/store/checkpoint.h"
#include "layer_conversion.h"
#include "training/train/loop/start.h"
#include "training/train/step/teacher.h"

namespace headroom::convert {
namespace {

namespace fs = std::filesystem;

constexpr double kLearningRate = 0.25;  // times the source's rate
constexpr double kWarmup = 0.1;         // fraction of the steps

struct Converted {
  std::string name;
  config::Config target;
  fs::path file, random;
};

std::int64_t steps_of(const config::Config& source, double share) {
  const std::int64_t steps = std::llround(share * static_cast<double>(source.train.steps));
  return share > 0.0 ? std::max<std::int64_t>(1, steps) : 0;
}

// Returns the source's config without train.start_from and train.teacher, which the runs set themselves.
config::Config source_config(const StudyRequest& request) {
  const fs::path file = store::find_checkpoint(request.source);
  const store::Checkpoint checkpoint = store::read_checkpoint(file, store::Check::shapes);
  if (checkpoint.step == 0) {
    user_error(
        "compare: --convert: {} is at step 0, so it has no training of which --tokens could be a share; expected a run",
        file.string());
  }
  config::Config config = checkpoint.config;
  const config::TrainOptions none;
  config.train.seconds = none.seconds;  // otherwise the time limit would set the number of steps
  for (std::string config::TrainOptions::*key :
       {&config::TrainOptions::start_from, &config::TrainOptions::start_sha256, &config::TrainOptions::teacher,
        &config::TrainOptions::teacher_sha256}) {
    config.train.*key = none.*key;
  }
  config.train.teacher_weight = none.teacher_weight;
  config.train.teacher_temperature = none.teacher_temperature;
  return config;
}

// Returns the config of a run that continues the source's training from the parameters in `start`.
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
  train.muon_learning_rate *= kLearningRate;  // 0: the rate above
  train.schedule = config::Schedule::linear;
  train.final_learning_rate = 0.0;
  train.start_from = absolute_path(start).string();
  if (taught) {
    train.teacher = absolute_path(request.source).string();
  }
  config::change(config, request.overrides, "--set");
  config::check(config, "compare: --convert");
  return train::with_initial_parameters(config);
}

// Returns the losses of a conversion on held-out tokens.
std::string losses_of(const fs::path& file) {
  const store::Checkpoint conversion = store::read_checkpoint(file, store::Check::shapes);
  const auto losses = conversion.metadata.find(kLosses);
  return losses == conversion.metadata.end() ? "an unrecorded loss" : "a loss of " + losses->second;
}

ConvertRequest request_of(const StudyRequest& request, const config::Config& source, const Converted& to, bool random) {
  return {.source = request.source,
          .to = to.name,
          .target = to.target,
          .data = {},
          .fit_steps = random ? 0 : ConvertRequest().fit_steps,
          .random_attention = random,
          .threads = source.train.threads,
          .seed = static_cast<std::uint64_t>(source.train.seed),
          .out = random ? to.random : to.file,
          .cache = request.cache,
          .command = request.command};
}

// Throws UserError if an existing conversion has another config or was made from other parameters.
void check_conversion(const ConvertRequest& wanted, const config::Config& source, const std::string& source_sha256) {
  const store::Checkpoint there = store::read_checkpoint(wanted.out, store::Check::shapes);
  std::vector<std::string> notes;
  const std::vector<std::string> changed =
      config::differing_keys(there.config.model, result_config(wanted, source, notes).model);
  if (!changed.empty()) {
    user_error(
        "compare: --convert: {} is a conversion to another config, with another value of {}; remove it to convert "
        "again, or choose another --out",
        wanted.out.string(), changed.front());
  }
  const auto hash = there.metadata.find(kSourceHash);
  if (hash != there.metadata.end() && hash->second != source_sha256) {
    user_error(
        "compare: --convert: {} was converted from other parameters than {} has now; remove it to convert again, or "
        "choose another --out",
        wanted.out.string(), wanted.source);
  }
}

std::string hash_of_source(const StudyRequest& request) {
  config::Config config;
  config.train.start_from = request.source;
  return train::open_initial_parameters(config)->parameters_sha256;
}

// Converts the source to each target, unless the result exists. `losses` receives a sentence for each target.
std::vector<Converted> convert_all(const StudyRequest& request, const config::Config& source,
                                   std::vector<std::string>& losses) {
  make_folder(request.out / "converted");
  std::vector<Converted> targets;
  std::set<std::string> names = {"dense", "dense-taught"};
  std::string source_sha256;  // computed once it is needed
  for (const std::string& to : request.targets) {
    Converted converted{
        .name = fs::path(to).stem().string(), .target = config::load_config(to), .file = {}, .random = {}};
    if (!names.insert(converted.name).second) {
      user_error("compare: --to: two runs are named {}; give the configs different file names", converted.name);
    }
    converted.file = request.out / "converted" / (converted.name + ".safetensors");
    converted.random = request.out / "converted" / (converted.name + "-random.safetensors");
    for (const bool random : {false, true}) {
      if (const ConvertRequest wanted = request_of(request, source, converted, random); fs::exists(wanted.out)) {
        source_sha256 = source_sha256.empty() ? hash_of_source(request) : source_sha256;
        check_conversion(wanted, source, source_sha256);
      } else {
        convert(wanted);
      }
    }
    losses.push_back(fmt::format("{} without training: {}; with random parameters instead: {}.", converted.name,
                                 losses_of(converted.file), losses_of(converted.random)));
    targets.push_back(std::move(converted));
  }
  return targets;
}

// Returns the runs for one share of the source's tokens; each is a family.
std::vector<StudyRun> runs_of(double share, const config::Config& source, const std::vector<Converted>& targets,
                              const StudyRequest& request) {
  const bool trained = share > 0.0, has_teacher = trained && train::can_teach(source.model);
  std::vector<StudyRun> runs;
  const auto add = [&](const std::string& name, config::Config config) {
    runs.push_back({fmt::format("{}-{:g}%", name, 100.0 * share), std::move(config), name});
  };
  const std::string teacher = absolute_path(request.source).string();
  const auto add_continued = [&](const std::string& name, const fs::path& start, bool taught) {
    config::Config config = continued(source, start, share, taught, request);
    if (config.train.teacher == teacher) {
      config.train.teacher_sha256 = runs.front().config.train.start_sha256;  // the dense model starts from the source
    }
    add(name, std::move(config));
  };
  add_continued("dense", request.source, false);
  if (has_teacher) {
    add_continued("dense-taught", request.source, true);
  }
  for (const Converted& to : targets) {
    add_continued(to.name, to.file, has_teacher);
    add_continued(to.name + "-random", to.random, has_teacher);
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
  const config::Config source = source_config(request);
  Study study;
  const std::vector<Converted> targets = convert_all(request, source, study.before_training);
  // Untrained runs come last, because the first run is the table's baseline.
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
