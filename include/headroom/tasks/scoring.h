// Log-probabilities that a language model gives to parts of texts: what tests without training are scored from.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
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

// What is in front of a text: nothing, a line end, as texts begin after one in training here, or a token of its own.
enum class Begin { none, line_end, bos };
inline constexpr std::pair<Begin, std::string_view> kBegins[] = {
    {Begin::none, "none"}, {Begin::line_end, "line_end"}, {Begin::bos, "bos"}};

struct Beginning {
  Begin kind = Begin::line_end;
  std::int32_t bos = -1;  // for Begin::bos
  // For Begin::none: in front of a continuation without context, whose first token nothing would predict; -1: that one
  // is only read.
  std::int32_t stand_in = -1;
};

// A text as a sequence: its beginning, then the context, then the continuation, whose tokens are scored. Which these
// are is decided as by lm-evaluation-harness: blanks at the context's end are the continuation's, and what is beyond as
// many tokens as the context has; where that is none, what is beyond the first token that differs. A text that begins
// with bos, or the token that stands in for it, gets no second one. Throws MisuseError, beginning with `where`, for a
// continuation without tokens.
Sequence to_sequence(const tokenizers::Tokenizer& tokenizer, std::string_view context, std::string_view continuation,
                     std::string_view where, const Beginning& beginning = {});

// Reads the sequences, batched by length, options.batch_size at a time; results do not depend on that, apart from
// rounding. Equal sequences are read once and get equal scores, to the bit. options.peers share the batches out and get
// the same scores. A model with memory reads a sequence of any length, chunk by chunk; one without reads the last
// context_length tokens before the last one. Throws MisuseError when the model is of another vocabulary.
Scores score(const models::LanguageModel& model, const std::vector<Sequence>& sequences, const EvaluateOptions& options,
             std::string_view title);

}  // namespace headroom::tasks
