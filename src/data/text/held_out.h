// Divides a text into training and validation.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "headroom/config/run_options.h"
#include "headroom/tokenizers/tokenizer.h"
#include "text.h"

namespace headroom::data {

// A part of a text, in bytes or tokens: [begin, end).
struct Range {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
};

// Returns the documents of a text of this size, given where each begins.
std::vector<Range> documents_between(const std::vector<std::int64_t>& starts, std::int64_t size);
// Draws documents, ascending, with about `share` of the total size, spread over the text: at least one, but not all of
// two or more. They depend only on the sizes, so every run of the same text has the same validation split.
std::vector<Range> drawn_documents(const std::vector<Range>& documents, double share);
// Returns the gaps between ascending ranges within [0, size).
std::vector<Range> complement(const std::vector<Range>& ranges, std::int64_t size);

// Returns one split of a text. With order `shuffled`, documents drawn from the whole text are for validation; with
// order `given`, and for a text of a single document, its last lines. About `share` of the bytes is held out, and each
// split has at least one line. `name` is the text in messages. The first call of next() throws UserError if the text
// has a single line.
std::unique_ptr<tokenizers::TextSource> split_of(std::unique_ptr<tokenizers::TextSource> whole,
                                                 const config::DataOptions& options, Split split, std::string name);

}  // namespace headroom::data
