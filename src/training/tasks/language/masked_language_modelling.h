// Predicting hidden tokens from those on both sides, as RoBERTa is trained (Liu et al. 2019, "full sentences", dynamic
// masking) and MoA's masked language models are: cross-entropy and perplexity of the hidden tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/tokens/token_file.h"
#include "training/tasks/task.h"

namespace headroom::tasks {

// Training reads rows in a new order every epoch, with another 15% of each row's tokens hidden: of these, 80% are
// replaced by <mask>, 10% by a random token, 10% stay. What is hidden follows from train.seed, the epoch and the row's
// place in the file, never from the batch. What validation hides follows from a seed of its own, the same in every run.
// Figures: "loss" in nats a hidden token, "perplexity" exp(loss).
const Task& masked_language_modelling();

// Consecutive tokens of a file that are read as one row.
struct Stretch {
  std::int64_t begin = 0, length = 0;
};

// Which of the tokenizer's ids end a line: of byte-level BPE also those of several line ends or of blanks before one.
// Empty: none does.
std::vector<bool> line_ends(const tokenizers::Tokenizer& tokenizer);
// The whole file as stretches of at most `longest` tokens, as many whole sentences as fit in each; a sentence ends with
// one of the tokens `ends` (none: cut anywhere). A longer one is cut, and its rest begins the next stretch.
std::vector<Stretch> pack_sentences(const data::TokenFile& file, const std::vector<bool>& ends, std::int64_t longest);

// How many of a row's `length` >= 1 tokens are hidden: 15%, rounded at random so that it is 15% in the mean; at
// least 1.
std::int64_t hidden_count(std::int64_t length, std::uint64_t row_seed);

// The special ids of a model whose vocabulary has `vocabulary_size` ids.
struct MaskingTokens {
  std::int64_t words, separator, mask;  // ids below `words` are the tokenizer's
  explicit MaskingTokens(std::int64_t vocabulary_size)
      : words(vocabulary_size - 2), separator(vocabulary_size - 2), mask(vocabulary_size - 1) {}
};

// <separator>, the tokens with some hidden, <separator>; `hidden`: the original tokens of hidden places, -1 elsewhere.
struct MaskedRow {
  std::vector<std::int64_t> tokens, hidden;
};
MaskedRow mask_row(const std::vector<std::int32_t>& tokens, const MaskingTokens& ids, std::uint64_t row_seed);

}  // namespace headroom::tasks
