// How good a language model is: cross-entropy, perplexity, bits per byte over a token file.
#pragma once

#include <cstdint>
#include <memory>

#include "headroom/data/token_file.h"
#include "headroom/models/language_model.h"

namespace headroom::eval {

struct EvaluateOptions {
  std::int64_t batch_size = 16;  // contiguous streams read side by side
  nn::Context context;
  bool show_progress = false;
};

struct Evaluation {
  double loss = 0.0;           // nats a token, sum CE / N
  double perplexity = 0.0;     // exp(loss)
  double bits_per_byte = 0.0;  // sum CE / ln 2 / UTF-8 bytes of the predicted tokens' text
  std::int64_t tokens = 0;     // N, tokens predicted
  double seconds = 0.0;
};

// Contiguous streams, memory carried, first chunk without context (spec/tasks.md). Throws MisuseError when the file's
// vocabulary does not fit the model's.
Evaluation evaluate(const models::LanguageModel& model, std::shared_ptr<const data::TokenFile> tokens,
                    const EvaluateOptions& options);

}  // namespace headroom::eval
