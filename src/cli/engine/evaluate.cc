#include "engine.h"
#include "headroom/core/log.h"
#include "headroom/core/system.h"
#include "headroom/eval/checkpoint.h"
#include "headroom/tasks/task.h"
#include "headroom/train/compute.h"

namespace headroom::cli {

int run(const Evaluate& command, const EngineRequest& request) {
  const at::Device device = train::resolve(command.device);
  const std::filesystem::path file = eval::find_checkpoint(command.model);
  eval::Checkpoint checkpoint = eval::read_checkpoint(file);
  checkpoint.config.data.skip_bad_rows |= command.skip_bad_rows;
  const tasks::Task& task = tasks::task_for(checkpoint.config.model, "evaluate");
  const auto data = task.open_evaluation(
      {.config = checkpoint.config, .tokenizer = checkpoint.tokenizer, .files = command.data, .cache = cache_folder()});
  const std::unique_ptr<models::Model> model = eval::build_model(checkpoint, device);

  tasks::EvaluateOptions options{.batch_size = command.batch_size,
                                 .context = train::make_context(checkpoint.config.train, device),
                                 .show_progress = true};
  catch_interrupts();
  const tasks::Evaluation result = data->evaluate(*model, options);
  if (!result.complete) {
    log_info("interrupted after {} predictions", result.tokens);
    return kInterrupted;
  }
  request.output.text(fmt::format("{}: {} over {} predictions, {}\n", file.string(),
                                  tasks::describe(result.figures, task.figures()), result.tokens,
                                  format_duration(result.seconds)));
  Json document = result.figures;
  document["tokens"] = result.tokens;
  document["seconds"] = result.seconds;
  document["checkpoint"] = file.string();
  document["step"] = checkpoint.step;
  request.output.document(document);
  return 0;
}

}  // namespace headroom::cli
