// Computes log-probabilities of text spans under a language model, for zero-shot and few-shot tests.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "headroom/models/language_model.h"
#include "headroom/tokenizers/tokenizer.h"
#include "training/tasks/task.h"

namespace headroom::tasks {

// Tokens [begin, end) of a sequence. begin is at least 1, because the first token is not predicted.
struct TokenSpan {
  std::int64_t begin = 1, end = 1;
};

struct Sequence {
  std::vector<std::int32_t> tokens;
  std::vector<TokenSpan> scored;
};

// The score of a span given the tokens before it.
struct SpanScore {
  double log_probability = 0.0;  // sum over its tokens, in nats
  std::int64_t tokens = 0;
  bool likeliest = true;  // greedy decoding would generate exactly these tokens
};

struct Scores {
  std::vector<std::vector<SpanScore>> spans;  // by sequence, then as in Sequence::scored
  std::int64_t truncated = 0;                 // number of sequences whose start did not fit the context
  std::int64_t tokens = 0;                    // tokens read
  bool complete = true;                       // false: interrupted by Ctrl-C
};

// The prefix of a text: none, a line end (as in training data), or a BOS token.
enum class PrefixKind { none, line_end, bos };
inline constexpr std::pair<PrefixKind, std::string_view> kPrefixKinds[] = {
    {PrefixKind::none, "none"}, {PrefixKind::line_end, "line_end"}, {PrefixKind::bos, "bos"}};

struct Prefix {
  PrefixKind kind = PrefixKind::line_end;
  std::vector<std::int32_t> bos = {};  // for PrefixKind::bos
  // For PrefixKind::none: the token placed before a continuation without context, so that its first token can be
  // predicted. -1: the first token is not scored.
  std::int32_t stand_in = -1;
};

// Encodes the prefix, the context and the continuation, and marks the continuation's tokens as scored. They are split
// as in lm-evaluation-harness: trailing blanks of the context move to the continuation; if the context alone has n
// tokens, the continuation starts at token n of the whole text, or, if no tokens remain, at the first token that
// differs. A text that starts with `bos` or `stand_in` does not get a second one. Throws UserError, whose message
// starts with `where`, for a continuation without tokens.
Sequence to_sequence(const tokenizers::Tokenizer& tokenizer, std::string_view context, std::string_view continuation,
                     std::string_view where, const Prefix& prefix = {});

// Scores the sequences in batches of options.batch_size, sorted by length. On the CPU the scores' bits do not depend on
// the batch size, and equal the scores of an engine that reads the sequences as prompts. Equal sequences get
// bit-identical scores. The ranks of options.group divide the batches and get the same scores. A model with memory
// reads sequences of any length, chunk by chunk; other models read the last context_length + 1 tokens. Throws UserError
// if the model's vocabulary differs.
Scores score(const models::LanguageModel& model, const std::vector<Sequence>& sequences, const EvaluateOptions& options,
             std::string_view title);

}  // namespace headroom::tasks
