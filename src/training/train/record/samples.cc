#include "samples.h"

#include <utility>

#include "headroom/decode/generate.h"
#include "headroom/models/language_model.h"

namespace headroom::train {
namespace {

constexpr double kTemperature = 0.8;

std::string continued(const models::Model& model, const tokenizers::Tokenizer& tokenizer, const std::string& prompt,
                      const decode::GenerateOptions& options) {
  return decode::generate(models::as_language_model(model, "train"), tokenizer, prompt, options).text;
}

}  // namespace

Samples::Samples(std::string prompt, std::shared_ptr<const tokenizers::Tokenizer> tokenizer, const models::Model& model,
                 const nn::Context& context)
    : prompt_(std::move(prompt)), tokenizer_(std::move(tokenizer)) {
  // What it refuses is refused before training, not after an hour of it.
  continued(model, *tokenizer_, prompt_, {.tokens = 0, .temperature = kTemperature, .context = context});
}

std::string Samples::draw(const models::Model& model, const nn::Context& context) const {
  return continued(model, *tokenizer_, prompt_, {.tokens = kTokens, .temperature = kTemperature, .context = context});
}

}  // namespace headroom::train
