// Opens a run and its folder. The training loop is in run.cc.
#include "train.h"

#include <ATen/Parallel.h>

#include <chrono>
#include <optional>
#include <utility>

#include "data/text/text.h"
#include "foundation/core/files/folders.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/text/format.h"
#include "headroom/core/files.h"
#include "headroom/core/json.h"
#include "headroom/decode/generate.h"
#include "headroom/models/compute.h"
#include "headroom/store/checkpoint.h"
#include "headroom/store/huggingface.h"
#include "run.h"
#include "start.h"
#include "step_time.h"
#include "training/cost/cost.h"
#include "training/parallel/shards.h"
#include "training/tasks/task.h"
#include "training/train/ranks/gradient_reducer.h"
#include "training/train/record/writer.h"
#include "training/train/step/state.h"

namespace headroom::train {
namespace {

// Logs the settings with which a single rank would reach the same parameters.
void describe_ranks(const config::TrainOptions& given, const config::TrainOptions& train, int ranks) {
  const auto key = [](const char* name, std::int64_t was, std::int64_t is) {
    const std::string raised =
        was == is ? "" : fmt::format(" (raised from {}, because each rank needs a part of the batch)", was);
    return fmt::format("train.{} = {}{}", name, is, raised);
  };
  const std::string sums =
      train.gradient_accumulators == 0
          ? ""
          : ", " + key("gradient_accumulators", given.gradient_accumulators, train.gradient_accumulators);
  log_info("{} ranks of {}; one rank gives the same parameters with --threads {}, {}{}", ranks,
           counted(at::get_num_threads(), "thread"), at::get_num_threads(),
           key("accumulate", given.accumulate, train.accumulate), sums);
}

// Returns the config with all keys resolved that depend on the machine, the resumed checkpoint or the initial
// parameters.
config::Config resolve(config::Config config, const std::optional<ResumePoint>& resumed,
                       const std::optional<InitialParameters>& initial, const parallel::GlooGroup& group) {
  if (initial) {
    config = with_initial_parameters(std::move(config), *initial);
  } else if (resumed && !config.train.start_from.empty()) {
    config = with_resumed_parameters(std::move(config), *resumed);
  }
  if (resumed) {
    config = as_resumed(std::move(config), resumed->checkpoint.config, resumed->checkpoint.step);
  }
  config::Precision& precision = config.train.precision;
  precision = models::resolve(precision, models::resolve(config.train.device));
  parallel::raise_accumulators(config.train, group.size());  // at least one for each rank
  if (resumed) {
    if (config.vocabulary_follows_tokenizer) {
      config.model.vocabulary_size = resumed->checkpoint.config.model.vocabulary_size;
    }
    check_resumable(*resumed, config);
  }
  return config;
}

// Returns the name of the training data, with a note if the recipe is meant for other data.
std::string corpus_of(const config::Config& config) {
  const bool its_own = config.made_for.empty() || !config.data.train.empty();
  return data::corpus_name(config.data, data::Split::train) +
         (its_own ? "" : fmt::format(", not the recipe's own data ({})", config.made_for));
}

// GFLOP per step without pairs that a mask hides, and the peak GFLOP/s of all ranks together; both zero if batch sizes
// vary.
struct Speed {
  double step_gflop = 0.0, machine_gflops = 0.0;
};

Speed speed_of(const config::Config& config, const parallel::GlooGroup& group) {
  const std::optional<double> flops = cost::visible_step_flops(config);
  if (!flops) {
    return {};
  }
  return {.step_gflop = 1e-9 * *flops,
          .machine_gflops = group.size() * matmul_rate(config.train.precision, models::resolve(config.train.device))};
}

// Reads the history of the run in this folder up to its checkpoint.
History history_of(const std::filesystem::path& folder, const std::optional<ResumePoint>& resumed,
                   const std::vector<tasks::FigureKind>& kinds) {
  History history = read_history(folder, resumed ? resumed->checkpoint.step : 0, kinds);
  history.best_step = store::step_in(best_file(folder));
  if (resumed && !resumed->checkpoint.tensors.empty()) {  // the last step of a sharded run is also saved as a whole
    history.saved_step = resumed->checkpoint.step;
  }
  return history;
}

// Throws UserError unless all ranks agree on everything that affects the result.
void require_same_setup(const config::Config& config, const std::string& data, parallel::GlooGroup& group) {
  std::vector<std::pair<std::string, std::string>> mine = config::flatten(config);
  mine.emplace_back("the training data", data);
  mine.emplace_back("the version", HEADROOM_VERSION);
  mine.emplace_back("the CPU", cpu_name() + " with " + Json(cpu_features()).dump());
  mine.emplace_back("the number of threads", std::to_string(at::get_num_threads()));
  const std::vector<std::string> all = group.gather(to_json_line(Json(mine)));
  for (int rank = 1; rank < group.size(); ++rank) {
    const Json theirs = parse_json(all[static_cast<std::size_t>(rank)], "train"), first = parse_json(all[0], "train");
    for (std::size_t i = 0; i < first.size(); ++i) {
      if (i >= theirs.size() || theirs[i] != first[i]) {
        const auto text = [i](const Json& setup) {
          return i < setup.size() ? setup[i].at(1).get<std::string>() : std::string("nothing");
        };
        user_error("train: ranks must have the same setup: {} is {} on {}, but {} on {}",
                   first[i].at(0).get<std::string>(), text(theirs), group.name_of(rank), text(first), group.name_of(0));
      }
    }
  }
}

// Throws UserError unless all ranks see the folder that the leading rank has locked.
void require_shared_folder(const std::filesystem::path& out, parallel::GlooGroup& group) {
  const auto read = [&]() -> std::string {
    try {
      return read_text_file(out / ".lock", 4096);
    } catch (const Error&) {
      return "";
    }
  };
  const std::vector<std::string> all = group.gather(read());
  for (int rank = 1; rank < group.size(); ++rank) {
    if (all[static_cast<std::size_t>(rank)] != all[0]) {
      user_error("{}: {} cannot see this folder of {}; --out must be on a file system that all ranks share",
                 out.string(), group.name_of(rank), group.name_of(0));
    }
  }
}

// Calls `open` on the leading rank first, because it prepares files for the other ranks. That may take hours.
template <class Open>
auto leader_first(parallel::GlooGroup& group, std::int64_t timeout, const Open& open) {
  if (!group.leads()) {
    group.use_long_timeout();
    group.gather("");
    group.set_timeout(std::chrono::seconds(timeout));
    return open();
  }
  auto opened = open();
  group.gather("");
  return opened;
}

// Opens the run's data, with the tokenizer and the special tokens of the checkpoint that it continues or starts from.
tasks::TaskData open_data(const config::Config& config, const std::filesystem::path& cache,
                          const std::optional<ResumePoint>& resumed, const std::optional<InitialParameters>& initial) {
  const tasks::Task& task = tasks::task_for(config, "train");
  const bool holds_tokenizer = resumed && resumed->checkpoint.tokenizer;
  tasks::TaskData data =
      config.train.start_from.empty()
          ? task.open(config, cache)
          : open_data_with(task, config,
                           holds_tokenizer ? resumed->file : store::find_checkpoint(config.train.start_from), cache);
  if (resumed || initial) {
    const store::Checkpoint& before = resumed ? resumed->checkpoint : initial->checkpoint;
    const auto special = before.metadata.find(store::kSpecialTokens);
    data.special_tokens = special == before.metadata.end() ? "" : special->second;
  }
  if (resumed) {
    check_data(resumed->checkpoint, data.training->identity(), resumed->file.string());
  }
  return data;
}

// For train.evaluate_every = "auto": sets the interval, unless the resumed run has set it. Returns
// Validations::predictions.
std::int64_t choose_validations(config::Config& config, const tasks::EvaluationData& validation) {
  const Validations planned =
      plan_validations(config, [&](std::int64_t predictions) { return validation.rows(config, predictions); });
  std::int64_t& every = config.train.evaluate_every;
  every = every == config::kAutomatic ? planned.every : every;
  return every == planned.every ? planned.predictions : 0;
}

// Throws UserError if the checkpoints that a run will add to its `stored` ones do not fit into the free space of its
// file system.
void check_disk(const config::Config& config, const std::filesystem::path& out, std::int64_t stored) {
  const cost::StepMemory memory = cost::step_memory(config);
  const double size = static_cast<double>(memory.parameters + memory.moments), free = available_bytes(out);
  std::int64_t count = 1;
  if (const std::int64_t every = config.train.checkpoint_every;
      every != 0) {  // the new checkpoint is written before the old one is removed
    count = std::min(config.train.keep_checkpoints + 1,
                     every == config::kAutomatic ? 2 : std::max<std::int64_t>(1, config.train.steps / every));
  }
  count = std::max<std::int64_t>(1, count + (config.train.keep_best ? 1 : 0) - stored);
  if (size * static_cast<double>(count) > free) {
    user_error(
        "{}: needs {} for {} of {}, but only {} are free on this disk; free some space, or lower "
        "train.keep_checkpoints",
        out.string(), format_bytes(size * static_cast<double>(count)), counted(count, "checkpoint"), format_bytes(size),
        format_bytes(free));
  }
}

// Logs the minimum time for the remaining steps if it is long. Small models run below the peak rate.
void log_least_time(const Speed& speed, std::int64_t steps) {
  constexpr double kLong = 60.0;
  const double seconds = static_cast<double>(steps) * speed.step_gflop / speed.machine_gflops;
  if (seconds > kLong) {
    log_info("{} take at least {}: {:.3g} GFLOP each, at the machine's peak of {:.3g} GFLOP/s", counted(steps, "step"),
             format_duration(seconds), speed.step_gflop, speed.machine_gflops);
  }
}

// Writes the config, logs the start of the run, and opens its other files.
Writer begin_writing(const TrainRequest& request, const Run& run, const Speed& speed, std::int64_t predictions,
                     parallel::GlooGroup& group) {
  const config::Config& config = run.config();
  if (group.leads()) {
    write_config(run.written_config(), request.out);
  }
  log_info("{}: {} parameters, at least {} of memory; {}: {}; {} matrix multiplications on {}, {}", request.title,
           format_count(static_cast<double>(run.model().parameters().count())),
           format_bytes(static_cast<double>(cost::step_memory(config).total)), corpus_of(config),
           run.data().training->identity(), config::name_of(config.train.precision), run.model().device().str(),
           counted(at::get_num_threads(), "thread"));
  const bool reads_text = config.model.kind == config::ModelKind::language_model ||
                          config.model.kind == config::ModelKind::masked_language_model;
  if (const std::string held_out = data::held_out_name(config.data); reads_text && !held_out.empty()) {
    log_info("validation data: {}", held_out);
  }
  log_least_time(speed, config.train.steps - run.state().step);
  if (run.state().step > 0 && run.state().step == config.train.steps) {
    log_info("{}: has done all of its {}; set a larger train.steps to train longer", request.out.string(),
             counted(config.train.steps, "step"));
  }
  log_info("{}", describe_intervals(config.train, predictions));
  log_warnings(config, run.data().tokenizer.get());
  return {{.folder = request.out,
           .title = request.title,
           .step = run.state().step,
           .steps = config.train.steps,
           .keep_checkpoints = config.train.keep_checkpoints,
           .samples = config.train.sample_every > 0,
           .step_gflop = speed.step_gflop,
           .machine_gflops = speed.machine_gflops,
           .group = &group},
          run.task().figures()};
}

}  // namespace

void check_machine(const config::Config& config) {
  const at::Device device = models::resolve(config.train.device);
  if (!device.is_cpu()) {
    return;
  }
  config::Config resolved = config;
  resolved.train.precision = models::resolve(config.train.precision, device);
  const cost::StepMemory needed = cost::step_memory(resolved);
  const std::int64_t available = memory_limit_bytes();
  const auto text = [](std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); };
  if (available > 0 && needed.total > available) {
    user_error(
        "train: a step needs at least {} of memory (parameters {}, gradients {}, optimizer {}, activations {}), but "
        "only {} are available; try a smaller model or train.batch_size, or a larger train.accumulate",
        text(needed.total), text(needed.parameters), text(needed.gradients), text(needed.moments),
        text(needed.activations), text(available));
  }
}

config::Config with_vocabulary_of(config::Config config, const tokenizers::Tokenizer* tokenizer, bool sharded) {
  if (config.vocabulary_follows_tokenizer && tokenizer != nullptr) {
    config.model.vocabulary_size = tokenizer->vocabulary_size() + config::n_special_tokens(config.model.kind);
    config::check(config, "train");
    if (!sharded) {
      check_machine(config);
    }
  }
  return config;
}

TrainResult train(const TrainRequest& request) {
  parallel::GlooGroup& group = *request.group;
  const std::int64_t timeout = request.config.train.timeout;
  group.set_timeout(std::chrono::seconds(timeout));
  if (request.config.train.start_from.empty()) {  // otherwise checked once the checkpoint has completed `model`
    config::check(request.config, "train");
  }
  const tasks::Task& task = tasks::task_for(request.config, "train");
  if (request.sharded) {
    require_shardable(request.config);
  }
  require_data_files(request.config.data);  // before creating the folder, so that a wrong name is refused first
  std::optional<FolderLock> lock;
  if (group.leads()) {
    lock.emplace(request.out);
  }
  std::optional<ResumePoint> resumed = leader_first(group, timeout, [&] { return open_run(request, group); });
  require_shared_folder(request.out, group);
  std::optional<InitialParameters> initial = resumed ? std::nullopt : open_initial_parameters(request.config);
  config::Config config = resolve(request.config, resumed, initial, group);
  if (!request.sharded) {
    check_machine(config);
  } else if (config.train.accumulate % group.size() != 0) {
    user_error("train.accumulate: must be a multiple of the number of ranks, {}, got {}", group.size(),
               config.train.accumulate);
  }
  if (group.leads() && (!resumed || resumed->checkpoint.step < config.train.steps)) {
    check_disk(config, request.out, resumed ? std::ssize(store::checkpoints_of(request.out)) : 0);
  }
  tasks::TaskData data =
      leader_first(group, timeout, [&] { return open_data(config, request.cache, resumed, initial); });
  config = with_vocabulary_of(std::move(config), data.tokenizer.get(), request.sharded != nullptr);
  models::set_threads(config.train.threads);
  catch_interrupts();
  if (config.train.seconds > 0.0 && !resumed) {
    choose_steps(config, data, group);
  }
  const std::int64_t predictions =
      request.config.train.evaluate_every == config::kAutomatic ? choose_validations(config, *data.validation) : 0;
  if (config.train.sample_every > 0 && !config.train.sample_prompt.empty()) {
    decode::check_prompt(*data.tokenizer, config.train.sample_prompt, "train.sample_prompt");
  }
  if (group.size() > 1) {
    if (!request.sharded) {
      describe_ranks(request.config.train, config.train, group.size());
    }
    require_same_setup(config, data.training->identity(), group);
  }
  const Speed speed = group.leads() ? speed_of(config, group) : Speed();  // before reset_peak_memory()
  models::reset_peak_memory(models::resolve(config.train.device));
  if (initial) {
    log_info("{}: starts with the parameters of {} (step {}, {})", request.title, initial->file.string(),
             initial->checkpoint.step, initial->parameters_sha256.substr(0, 16));
  }
  Run run({.config = std::move(config),
           .data = std::move(data),
           .history = history_of(request.out, resumed, task.figures()),
           .predictions = predictions,
           .recorded_losses = request.recorded_losses,
           .out = request.out,
           .sharded = request.sharded,
           .resumed = resumed ? &*resumed : nullptr,
           .initial = initial ? &*initial : nullptr},
          group);
  resumed.reset();  // the run has copied its contents
  initial.reset();
  group.gather("");  // wait until all ranks have read the folder
  Writer writer = begin_writing(request, run, speed, predictions, group);
  const Origin origin = origin_here(request.command, request.config.train, run_data(run.data()));
  const auto record = [&](const TrainResult& result, const std::string& diverged) {
    if (group.leads()) {
      write_result(result, diverged, origin, task, request.out);
    }
  };
  if (group.leads()) {
    write_origin(origin, request.out);
  }
  try {
    TrainResult result = run.finish(writer);
    group.use_long_timeout();
    if (!result.interrupted) {
      record(result, "");
    }
    return result;
  } catch (const DivergedError& error) {
    record(run.last_logged(), error.what());
    throw;
  }
}

}  // namespace headroom::train
