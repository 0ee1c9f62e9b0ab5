#include "headroom/eval/generate.h"

#include "engine.h"
#include "headroom/core/log.h"
#include "headroom/eval/checkpoint.h"
#include "headroom/train/compute.h"

namespace headroom::cli {

int run(const Generate& command, const EngineRequest& request) {
  const at::Device device = train::resolve(command.device);
  const eval::Checkpoint checkpoint = eval::read_checkpoint(eval::find_checkpoint(command.model));
  const nn::Context context = train::make_context(checkpoint.config.train, device);
  const std::unique_ptr<models::Model> built = eval::build_writer(checkpoint, device, context);
  const models::LanguageModel& model = models::as_language_model(*built, "generate");
  const Output& output = request.output;

  eval::GenerateOptions options;
  options.tokens = command.tokens;
  options.temperature = command.temperature;
  options.top_k = command.top_k;
  options.top_p = command.top_p;
  options.seed = command.seed;
  options.context = context;
  // The prompt appears with the first piece of its continuation: not at all if the options are refused.
  bool begun = false;
  options.on_text = [&](std::string_view piece) {
    output.text(begun ? std::string(piece) : command.prompt + std::string(piece));
    begun = true;
  };
  const eval::Generation result = eval::generate(model, *checkpoint.tokenizer, command.prompt, options);
  output.text("\n");
  log_info("{} tokens, {:.1f} tokens per second", result.tokens, result.tokens_per_second);
  output.document({{"text", result.text},
                   {"tokens", result.tokens},
                   {"tokens_per_second", result.tokens_per_second},
                   {"cache_numbers", result.cache_numbers}});
  return 0;
}

}  // namespace headroom::cli
