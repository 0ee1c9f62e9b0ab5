#include "tools/analyse/analyse.h"

#include "engine.h"
#include "foundation/core/machine/system.h"
#include "headroom/store/checkpoint.h"
#include "run_model.h"

namespace headroom::cli {

int run(const Analyse& command, const EngineRequest& request) {
  catch_interrupts();
  inspect::require_room_for_analyses(command.out);
  const inspect::AnalyseRequest job{
      .what = command.what, .text = {.text = command.text, .data = command.data}, .command = request.command_line};
  const std::vector<ModelChoice> choices = choices_of(command.models);
  for (const ModelChoice& choice : choices) {
    const std::filesystem::path file = store::find_checkpoint(choice.run);
    const store::Checkpoint checkpoint = store::read_checkpoint(file, store::Check::shapes);
    inspect::require_analyses(command.what, checkpoint.config.model, file.string());
  }
  std::vector<inspect::Analysed> all;
  for (const ModelChoice& choice : choices) {
    const store::OpenedModel opened = open_model({.choice = choice, .options = {}}, request);
    all.push_back(inspect::analyse(opened, job));
    request.output.text(fmt::format("{}\n", opened.name));
    for (const auto& [kind, findings] : all.back().analyses) {
      request.output.text(fmt::format("  {:<12} {}\n", kind->name, findings.summary));
    }
  }
  const Json document = inspect::write_analyses(all, job, command.out);
  request.output.text(document.at("report").get<std::string>() + "\n");
  request.output.document(document);
  return 0;
}

}  // namespace headroom::cli
