// What a language model writes while it learns.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "headroom/models/model.h"
#include "headroom/nn/context.h"
#include "headroom/tokenizers/tokenizer.h"

namespace headroom::train {

class Samples {
 public:
  static constexpr std::int64_t kTokens = 60;

  // Throws UserError where the model cannot continue the prompt.
  Samples(std::string prompt, std::shared_ptr<const tokenizers::Tokenizer> tokenizer, const models::Model& model,
          const nn::Context& context);

  const std::string& prompt() const { return prompt_; }
  // The prompt's continuation, drawn with the same seed each time.
  std::string draw(const models::Model& model, const nn::Context& context) const;

 private:
  std::string prompt_;
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer_;
};

}  // namespace headroom::train
