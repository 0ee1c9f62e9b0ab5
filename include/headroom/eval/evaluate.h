// How good a language model is: cross-entropy, perplexity, bits per byte over a token file.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>

#include "headroom/data/batches.h"
#include "headroom/data/token_file.h"
#include "headroom/eval/checkpoint.h"
#include "headroom/models/language_model.h"

namespace headroom::eval {

struct EvaluateOptions {
  std::int64_t batch_size = 16;  // contiguous streams read side by side; fewer where they would be under 4 chunks long
  nn::Context context;
  bool show_progress = false;
};

struct Evaluation {
  double loss = 0.0;        // nats a token, sum CE / N
  double perplexity = 0.0;  // exp(loss)
  // sum CE / ln 2 / UTF-8 bytes of the predicted tokens' text, taken as the file's bytes times N / tokens of the file:
  // the first token of each stream is not predicted.
  double bits_per_byte = 0.0;
  std::int64_t tokens = 0;  // N, tokens predicted
  double seconds = 0.0;
  bool complete = true;  // false: Ctrl-C (core/system.h) ended it early, and it speaks of the tokens until then
};

// Contiguous streams, memory carried, first chunk without context (spec/tasks.md). Throws MisuseError when the file's
// vocabulary does not fit the model's.
Evaluation evaluate(const models::LanguageModel& model, std::shared_ptr<const data::TokenFile> tokens,
                    const EvaluateOptions& options);

// Throws MisuseError when `tokens` were made by another tokenizer than the checkpoint's.
void check_tokenizer(const Checkpoint& checkpoint, const data::TokenFile& tokens);

// A batch as the model takes it: [batch, length + 1] int64, on the device of its parameters.
at::Tensor to_tensor(const data::Batch& batch, const models::LanguageModel& model);

}  // namespace headroom::eval
