// Texts with labels, and pairs of texts, from CSV and TSV files: byte-level classification.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "headroom/config/run_options.h"
#include "sequences.h"

namespace headroom::data {

struct LabelledTextReading {
  std::int64_t n_classes = 2;
  std::int64_t most_bytes = 0;  // of a text; what is longer is cut there
  bool paired = false;          // options.second_column is read as well
};

// A token is a byte; 0, which no text holds, is free to be padding. Columns are those of options.label_column,
// text_column and second_column: where all of them are numbers, the files' first lines are examples, otherwise they
// name the columns. A label is one of options.classes or the number of a class. Throws UserError naming file and line
// (data/table.h) for a missing column, a label out of range and an empty text.
LabelledSequences read_labelled_text(const std::vector<std::string>& patterns, const config::DataOptions& options,
                                     const LabelledTextReading& reading);

}  // namespace headroom::data
