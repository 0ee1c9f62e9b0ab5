// Masked language modelling as in RoBERTa (Liu et al. 2019, "full sentences", dynamic masking) and MoA: cross-entropy
// and perplexity of hidden tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/tokens/token_file.h"
#include "training/tasks/task.h"

namespace headroom::tasks {

// Every epoch reads the rows in a new order and hides another 15% of each row's tokens: of these, 80% are replaced by
// <mask>, 10% by a random token, and 10% are unchanged. The choice depends on train.seed, the epoch and the row's place
// in the file, not on the batch; in validation on a fixed seed, the same in every run.
// Figures: "loss" in nats a hidden token, "perplexity" exp(loss).
const Task& masked_language_modelling();

// Consecutive tokens of a file that form a row.
struct RowSpan {
  std::int64_t begin = 0, length = 0;
};

// For each of the tokenizer's ids, whether its text ends with a line end. Empty if none does.
std::vector<bool> line_ends(const tokenizers::Tokenizer& tokenizer);
// Divides the file into rows of at most `longest` tokens, each with as many whole sentences as fit. A sentence ends
// with a token in `ends` (if empty: after `longest` tokens). A longer sentence is cut, and its rest starts the next
// row.
std::vector<RowSpan> pack_sentences(const data::TokenFile& file, const std::vector<bool>& ends, std::int64_t longest);

// The number of hidden tokens of a row of `length` >= 1 tokens: 15%, rounded at random so that the mean is 15%; at
// least 1.
std::int64_t hidden_count(std::int64_t length, std::uint64_t row_seed);

// The special ids of a model, after those of its tokenizer.
struct MaskingTokens {
  std::int64_t words, separator, mask;  // ids below `words` belong to the tokenizer
  explicit MaskingTokens(std::int64_t vocabulary_size)
      : words(vocabulary_size - 2), separator(vocabulary_size - 2), mask(vocabulary_size - 1) {}
};

// <separator>, the tokens with some hidden, <separator>. `hidden`: the original tokens where hidden, -1 elsewhere.
struct MaskedRow {
  std::vector<std::int64_t> tokens, hidden;
};
MaskedRow mask_row(const std::vector<std::int32_t>& tokens, const MaskingTokens& ids, std::uint64_t row_seed);

}  // namespace headroom::tasks
