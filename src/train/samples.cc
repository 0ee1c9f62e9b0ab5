#include "samples.h"

#include <utility>

#include "headroom/core/log.h"
#include "headroom/core/printable.h"
#include "headroom/decode/generate.h"
#include "headroom/models/language_model.h"

namespace headroom::train {
namespace {

constexpr std::int64_t kTokens = 60;
constexpr double kTemperature = 0.8;

std::string continued(const std::string& prompt, std::int64_t tokens, const Samples::Writer& writer) {
  const decode::GenerateOptions options{.tokens = tokens, .temperature = kTemperature, .context = writer.context};
  return decode::generate(models::as_language_model(writer.model, "train"), writer.tokenizer, prompt, options).text;
}

}  // namespace

Samples::Samples(const std::filesystem::path& folder, std::int64_t step, std::string prompt, const Writer& writer)
    : prompt_(std::move(prompt)), file_(folder / "samples.jsonl", step) {
  continued(prompt_, 0, writer);  // what it refuses is refused before training, not after an hour of it
}

void Samples::write(std::int64_t step, const Writer& writer) {
  constexpr std::size_t kLongest = 600;
  const Progress pause("sample", kTokens, "tokens");  // the time that it takes is none of the training's
  const std::string text = continued(prompt_, kTokens, writer);
  file_.append({{"step", step}, {"prompt", prompt_}, {"text", text}});
  log_info("step {}: {}", step, printable(prompt_ + text, kLongest));
}

}  // namespace headroom::train
