// Log-probabilities that a language model gives to parts of texts: what tests without training are scored from.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "headroom/models/language_model.h"
#include "headroom/tasks/task.h"
#include "headroom/tokenizers/tokenizer.h"

namespace headroom::tasks {

// Tokens [begin, end) of a sequence; begin is at least 1, for the first token of all is only read.
struct Span {
  std::int64_t begin = 1, end = 1;
};

struct Sequence {
  std::vector<std::int32_t> tokens;
  std::vector<Span> scored;
};

// Of one span, given the tokens before it.
struct SpanScore {
  double log_probability = 0.0;  // sum over its tokens, in nats
  std::int64_t tokens = 0;
  bool likeliest = true;  // each token was likelier than all others: what greedy decoding writes
};

struct Scores {
  std::vector<std::vector<SpanScore>> spans;  // as the sequences' `scored`
  std::int64_t truncated = 0;                 // sequences whose beginning the model could not read
  std::int64_t tokens = 0;                    // read
  bool complete = true;                       // false: Ctrl-C
};

// A text as a sequence: a line end, as texts begin after one in training, then the context, then the continuation,
// whose tokens are scored. Where a token spans both, it counts as the continuation's. Throws MisuseError, beginning
// with `where`, for a continuation without tokens.
Sequence to_sequence(const tokenizers::Tokenizer& tokenizer, std::string_view context, std::string_view continuation,
                     std::string_view where);

// Reads the sequences, batched by length, options.batch_size at a time; results do not depend on that, apart from
// rounding. A model with memory reads a sequence of any length, chunk by chunk; one without reads the last
// context_length tokens before the last one. Throws MisuseError when the model is of another vocabulary.
Scores score(const models::LanguageModel& model, const std::vector<Sequence>& sequences, const EvaluateOptions& options,
             std::string_view title);

}  // namespace headroom::tasks
