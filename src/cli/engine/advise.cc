#include "tools/advise/advise.h"

#include "engine.h"
#include "foundation/core/machine/system.h"

namespace headroom::cli {

int run(const Advise& command, const EngineRequest& request) {
  catch_interrupts();
  advise::AdviseRequest job;
  job.config = command.config;
  job.overrides = overrides(command.set, request);
  job.budget = command.budget;
  job.variants = command.variants;
  job.heads = command.heads;
  job.keep = {command.keep.begin(), command.keep.end()};
  job.out = command.out;
  job.cache = cache_folder();
  job.command = request.command_line;
  const advise::Advice advice = advise::advise(job);
  request.output.document(advise::to_json(advice));
  request.output.text(advise::render_table(advice));
  for (const std::string& sentence : advice.sentences) {
    request.output.text(sentence + "\n");
  }
  request.output.text(advice.report.string() + "\n");
  return 0;
}

}  // namespace headroom::cli
