#include "samples.h"

#include "headroom/core/error.h"
#include "headroom/core/system.h"
#include "headroom/decode/generate.h"
#include "headroom/models/compute.h"
#include "headroom/models/language_model.h"
#include "headroom/store/checkpoint.h"

namespace headroom::compare {

std::vector<std::string> speak(const std::filesystem::path& folder, const std::vector<std::string>& prompts,
                               const CompareRequest& request) {
  std::vector<std::string> texts;
  if (prompts.empty()) {
    return texts;
  }
  const store::Checkpoint checkpoint = store::read_checkpoint(store::find_checkpoint(folder));
  const at::Device device = models::resolve(checkpoint.config.train.device);
  const nn::Context context = models::make_context(checkpoint.config.train, device);
  const std::unique_ptr<models::Model> model = store::build_writer(checkpoint, device, context);
  const models::LanguageModel& writer = models::as_language_model(*model, "compare");
  for (const std::string& prompt : prompts) {
    decode::GenerateOptions options;
    options.tokens = request.sample_tokens;
    options.temperature = request.sample_temperature;
    options.seed = request.sample_seed;
    options.context = context;
    texts.push_back(decode::generate(writer, *checkpoint.tokenizer, prompt, options).text);
    if (interrupted()) {
      throw InterruptedError("compare: interrupted while writing sample texts");
    }
  }
  return texts;
}

}  // namespace headroom::compare
