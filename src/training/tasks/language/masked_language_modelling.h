// Masked language modelling as in RoBERTa (Liu et al. 2019, "full sentences", dynamic masking) and MoA: cross-entropy
// and perplexity of hidden tokens.
#pragma once

#include <cstdint>
#include <vector>

#include "data/tokens/token_file.h"
#include "training/tasks/task.h"

namespace headroom::tasks {

// Every epoch reads the rows in a new order and hides another 15% of each row's tokens: of these, 80% are replaced by
// <mask>, 10% by a random token, and 10% are unchanged. The hidden tokens depend on train.seed, the epoch and the row's
// position in the file, not on the batch. Validation uses a fixed seed, so all runs hide the same tokens. Figures:
// "loss", in nats per hidden token; "perplexity", exp(loss).
const Task& masked_language_modelling();

// Consecutive tokens of a file that form a row.
struct RowSpan {
  std::int64_t begin = 0, length = 0;
};

// Returns, by token id, whether the token's text ends with a line end. Empty if none does.
std::vector<bool> line_ends(const tokenizers::Tokenizer& tokenizer);
// Divides the file into rows of at most `longest` tokens, each with as many whole sentences as fit. A sentence ends
// with a token in `ends` (if empty: after `longest` tokens). Sentences longer than a row are cut, and the remainder
// starts the next row.
std::vector<RowSpan> pack_sentences(const data::TokenFile& file, const std::vector<bool>& ends, std::int64_t longest);

// Returns the number of hidden tokens in a row of `length` >= 1 tokens: 15%, rounded up or down at random so that the
// mean is 15%; at least 1.
std::int64_t hidden_count(std::int64_t length, std::uint64_t row_seed);

// The special token ids of a model, which follow the ids of its tokenizer.
struct MaskingTokens {
  std::int64_t words, separator, mask;  // ids below `words` belong to the tokenizer
  explicit MaskingTokens(std::int64_t vocabulary_size)
      : words(vocabulary_size - 2), separator(vocabulary_size - 2), mask(vocabulary_size - 1) {}
};

// `tokens`: <separator>, the row with some tokens hidden, <separator>. `hidden`: the original tokens at hidden
// positions, -1 elsewhere.
struct MaskedRow {
  std::vector<std::int64_t> tokens, hidden;
};
MaskedRow mask_row(const std::vector<std::int32_t>& tokens, const MaskingTokens& ids, std::uint64_t row_seed);

}  // namespace headroom::tasks
