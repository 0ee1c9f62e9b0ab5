#include "samples.h"

#include "foundation/core/machine/system.h"
#include "headroom/core/error.h"
#include "headroom/decode/generate.h"
#include "headroom/models/language_model.h"
#include "headroom/store/open_model.h"

namespace headroom::compare {

std::vector<std::string> speak(const std::filesystem::path& folder, const std::vector<std::string>& prompts,
                               const CompareRequest& request) {
  std::vector<std::string> texts;
  if (prompts.empty()) {
    return texts;
  }
  const store::OpenedModel opened = store::open_model(folder.string(), {.writes = true});
  const models::LanguageModel& writer = models::as_language_model(*opened.model, "compare");
  for (const std::string& prompt : prompts) {
    decode::GenerateOptions options;
    options.tokens = request.sample_tokens;
    options.temperature = request.sample_temperature;
    options.seed = request.sample_seed;
    options.context = opened.context;
    texts.push_back(decode::generate(writer, *opened.checkpoint.tokenizer, prompt, options).text);
    if (interrupted()) {
      throw InterruptedError("compare: interrupted while writing sample texts");
    }
  }
  return texts;
}

}  // namespace headroom::compare
