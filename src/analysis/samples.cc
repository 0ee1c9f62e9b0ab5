#include "samples.h"

#include "headroom/core/error.h"
#include "headroom/core/system.h"
#include "headroom/eval/checkpoint.h"
#include "headroom/eval/generate.h"
#include "headroom/models/language_model.h"
#include "headroom/train/compute.h"

namespace headroom::analysis {

std::vector<std::string> speak(const std::filesystem::path& folder, const std::vector<std::string>& prompts,
                               const CompareRequest& request) {
  std::vector<std::string> texts;
  if (prompts.empty()) {
    return texts;
  }
  const eval::Checkpoint checkpoint = eval::read_checkpoint(eval::find_checkpoint(folder));
  const at::Device device = train::resolve(checkpoint.config.train.device);
  const nn::Context context = train::make_context(checkpoint.config.train, device);
  const std::unique_ptr<models::Model> model = eval::build_writer(checkpoint, device, context);
  const models::LanguageModel& writer = models::as_language_model(*model, "compare");
  for (const std::string& prompt : prompts) {
    eval::GenerateOptions options;
    options.tokens = request.sample_tokens;
    options.temperature = request.sample_temperature;
    options.seed = request.sample_seed;
    options.context = context;
    texts.push_back(eval::generate(writer, *checkpoint.tokenizer, prompt, options).text);
    if (interrupted()) {
      throw InterruptedError("compare: interrupted while writing sample texts");
    }
  }
  return texts;
}

}  // namespace headroom::analysis
