#include "training/train/loop/train.h"

#include "engine.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/text/format.h"
#include "training/tasks/task.h"

namespace headroom::cli {
namespace {

// The figures of the best validation (train.keep_best) or the last one. An interrupted run has often trained further,
// or has validated on a part only.
std::string quality_of(const train::TrainResult& result, const tasks::Task& task) {
  if (result.validation.empty()) {
    return "not validated";
  }
  const train::ValidationPoint& shown = *result.chosen();
  const std::string part =
      shown.predictions > 0 ? fmt::format(", on {}", counted(shown.predictions, "prediction")) : "";
  return fmt::format("validation {}{}", tasks::describe(result.figures(), task.figures()),
                     shown.step == result.steps ? "" : fmt::format(" (at step {}{})", shown.step, part));
}

}  // namespace

std::vector<std::string> overrides(const std::vector<std::string>& set, const EngineRequest& request) {
  std::vector<std::string> all = set;
  if (request.threads > 0) {
    all.push_back(fmt::format("train.threads={}", request.threads));
  }
  return all;
}

int run(const Train& command, const EngineRequest& request) {
  return run(command, request, {});
}

int run(const Train& command, const EngineRequest& request, const train::ShardedCall& sharded) {
  const std::filesystem::path config(command.config);
  const std::filesystem::path out = command.out.empty() ? "runs" / config.stem() : std::filesystem::path(command.out);
  train::TrainRequest job{.config = config::load_run_config(command.config, overrides(command.set, request)),
                          .out = out,
                          .resume = command.resume,
                          .cache = cache_folder(),
                          .command = request.command_line,
                          .sharded = sharded};
  job.recorded_losses = job.config.recorded_losses;
  catch_interrupts();
  const train::TrainResult result = train::train(job);
  if (!parallel::default_group().leads()) {
    return result.interrupted ? interrupt_status() : 0;
  }
  const tasks::Task& task = tasks::task_for(job.config, "train");
  const Output& output = request.output;
  output.text(fmt::format("{}: {}, {}\n", out.string(), counted(result.steps, "step"), quality_of(result, task)));
  output.text(fmt::format("{} parameters, {} tokens per second, {}, peak memory {}\n",
                          format_count(static_cast<double>(result.parameters)), format_count(result.tokens_per_second),
                          format_duration(result.seconds),
                          format_bytes(static_cast<double>(result.peak_memory_bytes))));
  output.document(train::to_json(result, task));
  if (const std::string uncertain = tasks::uncertainty(result.figures()); !uncertain.empty()) {
    log_info("validation: {}", uncertain);
  }
  if (result.interrupted) {
    log_info("interrupted at step {}, {}; resume with --resume", result.steps,
             result.steps == 0 ? "nothing to save" : "checkpoint written");
    return interrupt_status();
  }
  return 0;
}

}  // namespace headroom::cli
