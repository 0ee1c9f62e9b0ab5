// Synthetic sequences of tokens that measure what attention can recall and what state it can keep (data.synthetic).
//
// Each row is a function of (generator_seed, split, row). Tokens are below 256, so that the tokenizer "bytes" reads
// them. docs/tasks.md describes the tasks and names their sources.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/text.h"
#include "headroom/config/run_options.h"

namespace headroom::data {

struct SyntheticRow {
  std::vector<std::int32_t> tokens;   // `length` inputs
  std::vector<std::int32_t> targets;  // the correct token after tokens[0..i]; -1: not scored
};

// Returns the task's number of items: options.synthetic_items, or the task's default if that is 0.
std::int64_t synthetic_items(const config::DataOptions& options);

// Throws UserError naming the key if rows of this length, or a vocabulary of this size, cannot hold the task.
void check_synthetic(const config::DataOptions& options, std::int64_t length, std::int64_t vocabulary = 256);

// Returns the text that the rows' items are hidden in: the first bytes of the built-in corpus, longer than any row of
// `length` tokens; empty for tasks without text. Throws what open_built_in_corpus() throws.
std::string synthetic_text(const config::DataOptions& options, Split split, std::int64_t length);

// Generates a row of `length` tokens; check_synthetic() has passed. `text`: synthetic_text().
SyntheticRow synthetic_row(const config::DataOptions& options, Split split, std::int64_t row, std::int64_t length,
                           std::string_view text = {});

// Returns the accuracy of guessing among the answers that occur in a row.
double chance_level(const config::DataOptions& options);

}  // namespace headroom::data
