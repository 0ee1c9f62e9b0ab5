// From a request to a run and its folder; the loop is in run.cc.
#include "train.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "data/text/text.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/text/format.h"
#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/core/json.h"
#include "headroom/decode/generate.h"
#include "headroom/models/compute.h"
#include "machine.h"
#include "pace.h"
#include "product_rate.h"
#include "resume.h"
#include "run.h"
#include "start.h"
#include "state.h"
#include "training/cost/cost.h"
#include "training/cost/memory.h"
#include "training/tasks/task.h"
#include "training/train/ranks/exchange.h"
#include "training/train/record/writer.h"

namespace headroom::train {
namespace {

// How often the run was validated and saved, where the request leaves that to it. With another number of steps it
// decides anew.
void take_over(const config::TrainOptions& past, config::TrainOptions& options) {
  if (past.steps == options.steps) {
    for (std::int64_t config::TrainOptions::*every :
         {&config::TrainOptions::evaluate_every, &config::TrainOptions::checkpoint_every}) {
      options.*every = options.*every == config::kAutomatic ? past.*every : options.*every;
    }
  }
}

// Micro-batches a step and the sums of their gradients, of which every process needs one.
void settle_parts(config::TrainOptions& train, const std::optional<Past>& past, const parallel::GlooGroup& world) {
  if (past) {
    const config::TrainOptions& was = past->checkpoint.config.train;
    if (train.accumulate < was.accumulate) {  // as it was settled when the run began
      train.accumulate = was.accumulate;
      train.gradient_accumulators = was.gradient_accumulators;
    } else if (train.accumulate == was.accumulate && train.gradient_accumulators > 0) {
      train.gradient_accumulators = std::max(train.gradient_accumulators, was.gradient_accumulators);
    }
  }
  const std::int64_t n = world.size();
  if (sums_of(train) >= n) {
    return;
  }
  if (train.accumulate >= n) {
    const std::int64_t was = train.gradient_accumulators;
    for (train.gradient_accumulators = n; train.accumulate % train.gradient_accumulators != 0;) {
      ++train.gradient_accumulators;
    }
    log_info(
        "train.gradient_accumulators: raised from {} to {}, since each of {} processes needs one; the same value gives "
        "the same "
        "result with one process",
        was, train.gradient_accumulators, n);
    return;
  }
  if (train.batch_size % n != 0) {
    user_error(
        "train.batch_size: {} sequences cannot be shared out among {} processes: it must be a multiple of their "
        "number, "
        "for example {} or {}",
        train.batch_size, n, std::max<std::int64_t>(train.batch_size / n, 1) * n, (train.batch_size / n + 1) * n);
  }
  train.accumulate = n;
  train.gradient_accumulators = 0;
  log_info("{} processes compute a micro-batch each: train.accumulate = {} gives the same with one process", n, n);
}

// The request's config with everything decided that depends on the machine, on the run's past or on its beginning.
config::Config settle(config::Config config, const std::optional<Past>& past, const std::optional<Start>& start,
                      const parallel::GlooGroup& world) {
  if (start) {
    config = begin_with(std::move(config), *start);
  } else if (past && !config.train.start_from.empty()) {
    config = go_on_with(std::move(config), *past);
  }
  config::Precision& precision = config.train.precision;
  if (past && precision == config::Precision::automatic) {
    precision = past->checkpoint.config.train.precision;
  }
  precision = models::resolve(precision, models::resolve(config.train.device));
  settle_parts(config.train, past, world);
  if (past) {
    take_over(past->checkpoint.config.train, config.train);
    if (config.vocabulary_follows_tokenizer) {
      config.model.vocabulary_size = past->checkpoint.config.model.vocabulary_size;
    }
    check_resumable(*past, config);
    const tokenizers::Tokenizer* tokenizer = past->checkpoint.tokenizer.get();
    config.tokenizer.by_line = tokenizer != nullptr && tokenizers::encodes_by_line(*tokenizer);
  }
  return config;
}

// The training data by name and, where it is not what the recipe is for, that.
std::string corpus_of(const config::Config& config) {
  const bool its_own = config.made_for.empty() || !config.data.train.empty();
  return data::corpus_name(config.data, data::Split::train) +
         (its_own ? "" : fmt::format(", not the recipe's own data ({})", config.made_for));
}

// An empty list that somebody wrote may be meant otherwise: with one that nobody wrote, the first line names the
// corpus.
void warn_of_no_data(const config::Config& config) {
  const auto given = config.given.find("data.train");
  if (given != config.given.end() && config.data.train.empty() && config.data.generator == config::Generator::none) {
    log_warning("data.train: names no files ({}): the run is trained on {}", given->second,
                data::corpus_name(config.data, data::Split::train));
  }
}

void warn_of_seen_data(const config::DataOptions& data) {
  for (const std::string& file : data.validation) {
    if (std::find(data.train.begin(), data.train.end(), file) != data.train.end()) {
      log_warning("data.validation: {} is training data too: what is measured there says nothing about unseen data",
                  file);
      return;
    }
  }
}

// 10^9 floating-point operations of a step's products, as executed accounting counts them, and a second of the machine;
// nothing where batches differ in what they hold.
struct Speed {
  double step_gflop = 0.0, machine_gflops = 0.0;
};

Speed speed_of(const config::Config& config, const parallel::GlooGroup& world) {
  const std::optional<double> flops = cost::step_flops(config);
  if (!flops) {
    return {};
  }
  return {.step_gflop = 1e-9 * *flops,
          .machine_gflops = world.size() * product_rate(config.train.precision, models::resolve(config.train.device))};
}

// What the past of a run in this folder left of its history.
History history_of(const std::filesystem::path& folder, const std::optional<Past>& past,
                   const std::vector<tasks::FigureKind>& kinds) {
  History history = read_history(folder, past ? past->checkpoint.step : 0, kinds);
  history.best_step = store::step_in(best_file(folder));
  if (past) {
    history.saved_step = past->checkpoint.step;
  }
  return history;
}

// Refuses to start where the processes are not alike: name and value of all that a run's results depend on.
void compare_notes(const config::Config& config, const std::string& data, parallel::GlooGroup& world) {
  std::vector<std::pair<std::string, std::string>> mine = config::flatten(config);
  mine.emplace_back("the training data", data);
  mine.emplace_back("the version", HEADROOM_VERSION);
  mine.emplace_back("the CPU", cpu_name() + " with " + Json(cpu_features()).dump());
  mine.emplace_back("the number of threads", std::to_string(at::get_num_threads()));
  const std::vector<std::string> all = world.gather(to_json_line(Json(mine)));
  for (int rank = 1; rank < world.size(); ++rank) {
    const Json theirs = parse_json(all[static_cast<std::size_t>(rank)], "train"), first = parse_json(all[0], "train");
    for (std::size_t i = 0; i < first.size(); ++i) {
      if (i >= theirs.size() || theirs[i] != first[i]) {
        const auto text = [i](const Json& notes) {
          return i < notes.size() ? notes[i].at(1).get<std::string>() : std::string("nothing");
        };
        user_error("train: the processes are not alike: {} is {} in {}, but {} in {}",
                   first[i].at(0).get<std::string>(), text(theirs), world.name_of(rank), text(first), world.name_of(0));
      }
    }
  }
}

// Whether all processes see the folder that the leading one has locked.
void require_shared_folder(const std::filesystem::path& out, parallel::GlooGroup& world) {
  const auto read = [&]() -> std::string {
    try {
      return read_text_file(out / ".lock", 4096);
    } catch (const Error&) {
      return "";
    }
  };
  const std::vector<std::string> all = world.gather(read());
  for (int rank = 1; rank < world.size(); ++rank) {
    if (all[static_cast<std::size_t>(rank)] != all[0]) {
      user_error("{}: {} does not see this folder of {}: --out must be one that all processes share", out.string(),
                 world.name_of(rank), world.name_of(0));
    }
  }
}

// The leading process first, which leaves prepared files to the others.
template <class Open>
auto leader_first(parallel::GlooGroup& world, const Open& open) {
  if (!world.leads()) {
    world.gather("");
    return open();
  }
  auto opened = open();
  world.gather("");
  return opened;
}

// Writes the config, says what begins, and opens the run's other files.
std::unique_ptr<Writer> begin_writing(const TrainRequest& request, const Run& run, const Speed& speed,
                                      parallel::GlooGroup& world) {
  const config::Config& config = run.config();
  if (world.leads()) {
    write_config(config, request.out);
  }
  log_info("{}: {} parameters, at least {} of memory; {}: {}; {} products on {}, {} thread{}", request.title,
           format_count(static_cast<double>(run.model().parameters().count())),
           format_bytes(static_cast<double>(cost::step_memory(config).total)), corpus_of(config),
           run.data().training->identity(), config::name_of(config.train.precision), run.model().device().str(),
           at::get_num_threads(), at::get_num_threads() == 1 ? "" : "s");
  log_info("{}", describe_pace(config.train));
  for (const std::string& sentence : config::unused_keys(config)) {
    log_warning("{}", sentence);
  }
  warn_of_no_data(config);
  warn_of_seen_data(config.data);
  return write_into({.folder = request.out,
                     .title = request.title,
                     .step = run.state().step,
                     .steps = config.train.steps,
                     .keep_checkpoints = config.train.keep_checkpoints,
                     .samples = config.train.sample_every > 0,
                     .step_gflop = speed.step_gflop,
                     .machine_gflops = speed.machine_gflops,
                     .peers = &world},
                    run.task().figures());
}

}  // namespace

TrainResult train(const TrainRequest& request) {
  parallel::GlooGroup lone;
  parallel::GlooGroup& world = request.world != nullptr ? *request.world : lone;
  config::check(request.config, "train");
  const tasks::Task& task = tasks::task_for(request.config, "train");
  std::optional<FolderLock> lock;
  if (world.leads()) {
    lock.emplace(request.out);
  }
  if (request.begins) {
    request.begins();
  }
  std::optional<Past> past = leader_first(world, [&] { return open_run(request, world); });
  require_shared_folder(request.out, world);
  std::optional<Start> start = past ? std::nullopt : open_start(request.config);
  config::Config config = settle(request.config, past, start, world);
  check_machine(config);
  tasks::TaskData data = leader_first(world, [&] {
    return config.train.start_from.empty() ? task.open(config, request.cache)
                                           : open_data(task, config, past ? past->file : start->file, request.cache);
  });
  config = with_vocabulary_of(std::move(config), data.tokenizer.get());
  if (past) {
    check_data(past->checkpoint, data.training->identity(), past->file.string());
  }
  if (config.train.evaluate_every == config::kAutomatic) {
    config.train.evaluate_every = steps_between_validations(config, data.validation->rows(config));
  }
  if (config.train.sample_every > 0 && !config.train.sample_prompt.empty()) {
    decode::check_prompt(*data.tokenizer, config.train.sample_prompt, "train.sample_prompt");
  }
  models::set_threads(config.train.threads);
  if (world.size() > 1) {
    compare_notes(config, data.training->identity(), world);
  }
  const Speed speed = world.leads() ? speed_of(config, world) : Speed();  // before memory counts as the run's
  catch_interrupts();
  reset_peak_memory();
  if (start) {
    log_info("{}: begins with the parameters of {} (step {}, {})", request.title, start->file.string(),
             start->checkpoint.step, start->parameters_sha256.substr(0, 16));
  }
  Run run(std::move(config), std::move(data), past, history_of(request.out, past, task.figures()), world, start);
  past.reset();  // the run has its own copies
  start.reset();
  world.gather("");  // all have read the folder
  const std::unique_ptr<Writer> writer = begin_writing(request, run, speed, world);
  TrainResult result = run.finish(*writer);
  world.use_long_timeout();
  if (request.finished) {
    request.finished(result);
  }
  return result;
}

}  // namespace headroom::train
