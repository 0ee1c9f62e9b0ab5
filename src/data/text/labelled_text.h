// Labelled token sequences in memory, for classification, and their reader for CSV and TSV files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "headroom/config/run_options.h"

namespace headroom::data {

// Token sequences of different lengths, stored contiguously.
class Sequences {
 public:
  void add(std::span<const std::uint16_t> tokens);
  std::int64_t size() const { return static_cast<std::int64_t>(ends_.size()); }
  std::span<const std::uint16_t> at(std::int64_t i) const;
  std::int64_t length(std::int64_t i) const { return static_cast<std::int64_t>(at(i).size()); }

 private:
  std::vector<std::uint16_t> tokens_;
  std::vector<std::size_t> ends_;
};

// Sequences, or pairs of sequences, with their class indices.
struct LabelledSequences {
  Sequences first, second;  // second: empty unless the examples are pairs
  std::vector<std::int32_t> labels;
  std::int64_t size() const { return first.size(); }
  std::int64_t length(std::int64_t i) const;  // length of the longer sequence of pair i
  std::string identity() const;               // "20000 examples, 9c41...": number and hash of the examples
};

struct LabelledTextReading {
  std::int64_t n_classes = 2;
  std::int64_t most_bytes = 0;  // longer texts are truncated to this many bytes
  bool paired = false;          // read options.second_column as well
};
// Reads texts as bytes, one token per byte; 0 never occurs in a text, so it can serve as padding. The columns are
// options.label_column, text_column and second_column. If all are numbers, the first line of a file is an example;
// otherwise it names the columns. A label is a class index or one of options.classes. Throws UserError naming file and
// line for a missing column, a label out of range or an empty text (see also table.h).
LabelledSequences read_labelled_text(const std::vector<std::string>& patterns, const config::DataOptions& options,
                                     const LabelledTextReading& reading);

}  // namespace headroom::data
