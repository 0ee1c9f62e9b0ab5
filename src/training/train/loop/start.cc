#include "start.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "foundation/core/machine/log.h"
#include "foundation/core/text/format.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/models/compute.h"
#include "headroom/store/open_model.h"
#include "training/train/step/state.h"
#include "training/train/step/step.h"

namespace headroom::train {

void refuse_others(const std::filesystem::path& folder, FolderKind wanted, std::string_view what) {
  constexpr struct {
    const char* file;
    FolderKind kind;
    const char* held;
  } kFiles[] = {{kComparisonFile, FolderKind::comparison, "a comparison"},
                {"metrics.jsonl", FolderKind::run, "a run"},
                {"checkpoints", FolderKind::run, "a run"}};
  for (const auto& [file, kind, held] : kFiles) {
    if (std::error_code error; std::filesystem::exists(folder / file, error)) {
      if (kind != wanted) {
        user_error("{}: already holds {}; choose another folder for {}", folder.string(), held, what);
      }
      return;
    }
  }
}

namespace {

namespace fs = std::filesystem;

// Keys outside `model` that a resumed run must not change.
constexpr std::string_view kFixed[] = {"train.batch_size",     "train.batch_tokens",   "train.seed",
                                       "train.optimizer",      "data.batching",        "data.order",
                                       "train.start_from",     "train.start_sha256",   "train.teacher",
                                       "train.teacher_sha256", "train.teacher_weight", "train.teacher_temperature"};

// Keys that only the steps read.
constexpr std::string_view kOfSteps[] = {
    "train.learning_rate",       "train.schedule",      "train.cosine_period", "train.warmup_steps",
    "train.final_learning_rate", "train.betas",         "train.epsilon",       "train.weight_decay",
    "train.muon_learning_rate",  "train.muon_momentum", "train.clip_norm",     "train.label_smoothing",
    "train.precision",           "train.implementation"};

}  // namespace

std::optional<ResumePoint> open_run(const TrainRequest& request, const parallel::GlooGroup& group) {
  std::error_code error;
  refuse_others(request.out, FolderKind::run, "the run");
  const fs::path folder = request.out / kShardedFolder;
  const bool holds_sharded = fs::exists(folder, error) && !fs::is_empty(folder, error);
  const bool holds_checkpoints = request.sharded ? holds_sharded : store::has_checkpoints(request.out);
  if (request.resume && !holds_checkpoints && (holds_sharded || store::has_checkpoints(request.out))) {
    user_error("{}: cannot be resumed: it holds only checkpoints of {}; resume it with that command",
               request.out.string(), request.sharded ? "headroom train" : "headroom_torch.train");
  }
  if (!request.resume && !group.restarted() && (holds_checkpoints || fs::exists(request.out / "config.toml", error))) {
    user_error("{}: already holds a run; resume it (--resume) or choose another folder", request.out.string());
  }
  if (group.leads()) {
    remove_leftovers(request.out);
    remove_leftovers(request.out / "checkpoints");
  }
  if (!holds_checkpoints) {
    if (request.resume && (!request.command.empty() || fs::exists(request.out / "config.toml", error))) {
      log_info("nothing to resume in {}: the run starts at step 0", request.out.string());
    }
    return std::nullopt;
  }
  if (request.sharded) {
    return ResumePoint{folder, newest_sharded(request.sharded, request.out)};
  }
  const fs::path file = store::find_checkpoint(request.out);
  ResumePoint point{file, store::read_checkpoint(file)};
  store::require_finite(point.checkpoint, file.string());
  return point;
}

config::Config as_resumed(config::Config config, const config::Config& past_config, std::int64_t step) {
  config::TrainOptions& options = config.train;
  const config::TrainOptions& past = past_config.train;
  if (options.precision == config::Precision::automatic) {
    options.precision = past.precision;
  }
  if (options.accumulate < past.accumulate) {
    options.accumulate = past.accumulate;
    options.gradient_accumulators = past.gradient_accumulators;
  } else if (options.accumulate == past.accumulate && options.gradient_accumulators > 0) {
    options.gradient_accumulators = std::max(options.gradient_accumulators, past.gradient_accumulators);
  }
  if (options.seconds > 0.0 && options.seconds == past.seconds) {
    options.steps = past.steps;
    options.warmup_steps = past.warmup_steps;
  }
  if (options.steps == past.steps) {
    for (std::int64_t config::TrainOptions::*every :
         {&config::TrainOptions::evaluate_every, &config::TrainOptions::checkpoint_every}) {
      options.*every = options.*every == config::kAutomatic ? past.*every : options.*every;
    }
  }
  if (options.teacher_sha256.empty()) {
    options.teacher_sha256 = past.teacher_sha256;
  }
  if (step == options.steps) {
    config::take_values(config, past_config,
                        [](std::string_view key) { return std::ranges::find(kOfSteps, key) != std::end(kOfSteps); });
  }
  return config;
}

namespace {

// Logs how the learning rate continues after `step` steps if the resumed run has more steps or another schedule.
void log_change_of_rate(const config::TrainOptions& past, const config::TrainOptions& now, std::int64_t step) {
  constexpr double kNoticeable = 1.5;
  if (step == 0 || step >= now.steps) {
    return;
  }
  const double before = learning_rate(past, step - 1), after = learning_rate(now, step);
  if (now.steps != past.steps || std::max(before, after) > kNoticeable * std::min(before, after)) {
    log_info("the learning rate goes from {:.2g} at step {} to {:.2g} at step {}: the schedule is that of {} steps now",
             before, step, after, step + 1, now.steps);
  }
}

}  // namespace

void check_resumable(const ResumePoint& resumed, const config::Config& config) {
  if (const double past = resumed.checkpoint.config.train.seconds, now = config.train.seconds;
      now > 0.0 && now != past) {
    user_error(
        "train.seconds: must stay {} when a run is resumed, because it sets the number of steps when the run starts, "
        "got {}; set train.seconds=0 and train.steps to train longer",
        past, now);
  }
  const auto was = config::flatten(resumed.checkpoint.config), is = config::flatten(config);
  for (std::size_t i = 0; i < is.size(); ++i) {
    const auto& [key, value] = is[i];
    if (value == was[i].second) {
      continue;
    }
    if (key.starts_with("model.") || std::ranges::find(kFixed, key) != std::end(kFixed)) {
      user_error("{}: cannot be resumed with {} = {}: the run has {}", resumed.file.string(), key,
                 value.empty() ? "\"\"" : value, was[i].second.empty() ? "\"\"" : was[i].second);
    }
    if (!key.ends_with("_every") ||
        value != fmt::format("{}", config::kAutomatic)) {  // else describe_intervals() logs it
      log_info("resuming with {} = {} (was {})", key, value, was[i].second);
    }
  }
  if (resumed.checkpoint.step > config.train.steps) {
    user_error("{}: cannot be resumed with train.steps = {}: the run has already done {}", resumed.file.string(),
               config.train.steps, counted(resumed.checkpoint.step, "step"));
  }
  log_change_of_rate(resumed.checkpoint.config.train, config.train, resumed.checkpoint.step);
}

namespace {

constexpr const char* kKey = "train.start_from";

// Returns whether a key of `model` may differ from the checkpoint: keys that affect only training, and keys that set
// the attention range. All other keys determine the parameters or their meaning.
bool may_change(std::string_view key) {
  constexpr std::string_view kPrefixes[] = {"model.initialisation", "model.embedding_std", "model.context_length",
                                            "model.memory_length"};
  constexpr std::string_view kSuffixes[] = {"dropout", "_coefficient"};
  return config::sets_range(key) ||
         std::ranges::any_of(kPrefixes, [key](std::string_view prefix) { return key.starts_with(prefix); }) ||
         std::ranges::any_of(kSuffixes, [key](std::string_view suffix) { return key.ends_with(suffix); });
}

// Returns the key, preceded by the file or option that set it, as the start of a message.
std::string origin_of(const config::Config& config, const std::string& key) {
  const auto given = config.given.find(key);
  return given == config.given.end() ? key : fmt::format("{}: {}", given->second, key);
}

void require_same_model(const config::Config& config, const config::Config& was, const fs::path& file) {
  const auto is = config::flatten(config), stored = config::flatten(was);
  for (std::size_t i = 0; i < is.size(); ++i) {
    const auto& [key, value] = is[i];
    const bool is_set = config.given.contains(key) || key == "model.kind";
    if (key.starts_with("model.") && is_set && !may_change(key) && value != stored[i].second) {
      user_error("{} must be {}, as in {} ({}), got {}", origin_of(config, key), stored[i].second, file.string(), kKey,
                 value);
    }
  }
}

void require_same_tokenizer(const config::Config& config, const store::Checkpoint& checkpoint, const fs::path& file) {
  const config::TokenizerOptions& is = config.tokenizer;
  const tokenizers::Tokenizer& stored = *checkpoint.tokenizer;
  if (config.given.contains("tokenizer.kind") && is.kind != stored.kind()) {
    user_error("{} must be \"{}\", that of the tokenizer in {} ({}), got \"{}\"", origin_of(config, "tokenizer.kind"),
               config::name_of(stored.kind()), file.string(), kKey, config::name_of(is.kind));
  }
  if (config.given.contains("tokenizer.vocabulary_size") && is.vocabulary_size != stored.vocabulary_size() &&
      is.vocabulary_size != checkpoint.config.tokenizer.vocabulary_size) {
    user_error("{} must be {}, that of the tokenizer in {} ({}), got {}",
               origin_of(config, "tokenizer.vocabulary_size"), stored.vocabulary_size(), file.string(), kKey,
               is.vocabulary_size);
  }
  if (!is.model.empty()) {
    const std::string name = tokenizers::load_tokenizer(is.model, stored.vocabulary_size())->name();
    if (name != stored.name() && name != stored.for_targets().name()) {
      user_error("{}: {} is {}, but the tokenizer in {} ({}) is {}", origin_of(config, "tokenizer.model"), is.model,
                 name, file.string(), kKey, stored.for_targets().name());
    }
  }
  if (!is.source_model.empty()) {
    const std::string name = tokenizers::load_tokenizer(is.source_model)->name();
    if (name != stored.for_sources().name()) {
      user_error("{}: {} is {}, but the sources' tokenizer in {} ({}) is {}",
                 origin_of(config, "tokenizer.source_model"), is.source_model, name, file.string(), kKey,
                 stored.for_sources().name());
    }
  }
}

// With some position encodings, keys that may change determine parameter shapes.
void require_same_shapes(const config::Config& config, const store::Checkpoint& checkpoint, const fs::path& file) {
  const auto shapes = models::make_model(config.model, 0, at::TensorOptions(at::kFloat).device(at::kMeta));
  for (const nn::Parameter& parameter : shapes->parameters().stored()) {
    const auto found = checkpoint.tensors.find("model." + parameter.name);
    if (found == checkpoint.tensors.end() || found->second.sizes() != parameter.tensor.sizes()) {
      user_error("{} must be {}, as in {} ({}), because parameter \"{}\" has a row for each position, got {}",
                 origin_of(config, "model.context_length"), checkpoint.config.model.context_length, file.string(), kKey,
                 parameter.name, config.model.context_length);
    }
  }
}

// Returns the config with unset keys taken from the checkpoint.
config::Config filled_from(config::Config config, const store::Checkpoint& checkpoint) {
  const config::GivenKeys given = config.given;
  config::take_values(config, checkpoint.config, [&given](std::string_view key) {
    const bool of_tokenizer = key.starts_with("tokenizer.") && !key.ends_with("model");
    return (key.starts_with("model.") || of_tokenizer) && !given.contains(key);
  });
  if (checkpoint.tokenizer) {
    config.tokenizer.kind = checkpoint.tokenizer->kind();
    config.tokenizer.vocabulary_size = checkpoint.tokenizer->vocabulary_size();
  }
  return config;
}

}  // namespace

std::optional<InitialParameters> open_initial_parameters(const config::Config& config) {
  if (config.train.start_from.empty()) {
    return std::nullopt;
  }
  InitialParameters initial;
  initial.file = store::find_checkpoint(config.train.start_from);
  initial.checkpoint = store::read_checkpoint(initial.file);
  store::require_finite(initial.checkpoint, initial.file.string());
  initial.parameters_sha256 = parameters_sha256(store::build_model(initial.checkpoint)->parameters());
  return initial;
}

config::Config with_initial_parameters(config::Config config, const InitialParameters& initial) {
  const std::string& expected = config.train.start_sha256;
  if (!expected.empty() && expected != initial.parameters_sha256) {
    user_error("{} is {}, but the parameters in {} ({}) have changed since it was recorded: their hash is {}",
               origin_of(config, "train.start_sha256"), expected, initial.file.string(), kKey,
               initial.parameters_sha256);
  }
  require_same_model(config, initial.checkpoint.config, initial.file);
  if (initial.checkpoint.tokenizer) {
    require_same_tokenizer(config, initial.checkpoint, initial.file);
  }
  config = filled_from(std::move(config), initial.checkpoint);
  config::check(config, kKey);
  require_same_shapes(config, initial.checkpoint, initial.file);
  config.train.start_sha256 = initial.parameters_sha256;
  return config;
}

config::Config with_initial_parameters(config::Config config) {
  const std::optional<InitialParameters> initial = open_initial_parameters(config);
  return initial ? with_initial_parameters(std::move(config), *initial) : config;
}

config::Config with_teacher_sha256(config::Config config) {
  if (config.train.teacher.empty() || !config.train.teacher_sha256.empty()) {
    return config;
  }
  try {
    const store::Checkpoint teacher = store::read_checkpoint(store::find_checkpoint(config.train.teacher));
    config.train.teacher_sha256 = parameters_sha256(store::build_model(teacher)->parameters());
  } catch (const UserError&) {  // a new run refuses the teacher; finished runs do not need it
  }
  return config;
}

config::Config with_resumed_parameters(config::Config config, const ResumePoint& resumed) {
  if (config.train.start_sha256.empty()) {
    config.train.start_sha256 = resumed.checkpoint.config.train.start_sha256;
  }
  config = filled_from(std::move(config), resumed.checkpoint);
  config::check(config, kKey);
  return config;
}

tasks::TaskData open_data_with(const tasks::Task& task, config::Config config, const fs::path& file,
                               const fs::path& cache) {
  constexpr std::string_view kHere = "tokenizer.model";  // set here, so errors name train.start_from
  if (!config.model.has_classes()) {                     // models with classes have no tokenizer
    config.tokenizer.model = file.string();
    config.tokenizer.source_model.clear();
  }
  try {
    return task.open(config, cache);
  } catch (const UserError& error) {
    std::string text = error.what();
    if (const std::size_t at = text.find(kHere); at != std::string::npos) {
      text.replace(at, kHere.size(), kKey);
    }
    throw UserError(text);
  }
}

std::unique_ptr<models::Model> build_run_model(const config::Config& config, const ResumePoint* resumed,
                                               const InitialParameters* initial) {
  const at::Device device = models::resolve(config.train.device);
  if (initial != nullptr) {
    store::Checkpoint checkpoint{
        .config = {}, .step = 0, .tokenizer = {}, .tensors = initial->checkpoint.tensors, .metadata = {}};
    checkpoint.config.model = config.model;
    return store::build_trainable(checkpoint, device);
  }
  return resumed != nullptr ? store::build_trainable(resumed->checkpoint, device)
                            : models::make_model(config.model, static_cast<std::uint64_t>(config.train.seed),
                                                 at::TensorOptions(at::kFloat).device(device));
}

}  // namespace headroom::train
