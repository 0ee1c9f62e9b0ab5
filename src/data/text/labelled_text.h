// Labelled token sequences in memory, for classification, and their reader for CSV and TSV files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
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
// line for a missing column, a label out of range or an empty text.
LabelledSequences read_labelled_text(const std::vector<std::string>& patterns, const config::DataOptions& options,
                                     const LabelledTextReading& reading);

// Reads the rows of CSV and TSV files.

struct RowUse {
  // Returns whether the first row of a file is a header. Errors that it throws are never skipped.
  std::function<bool(const std::vector<std::string>& row)> header = nullptr;
  std::function<void(const std::vector<std::string>& row)> row = nullptr;
  bool skip_bad_rows = false;
};
// Calls `use` for every row of the files, in order: UTF-8 text, which may be gzip or zstd. In files named .csv, commas
// separate fields, and fields may be quoted as in RFC 4180: a quoted field may span lines and doubles the quotes inside
// it. In all other files, tabs separate fields and quotes are ordinary characters. Lines end with LF or CRLF. Empty
// lines and a byte order mark are skipped. Throws UserError naming file and line for an unclosed quote, characters next
// to a quoted field, a row of more than 64 MiB, a NUL byte or invalid UTF-8; after an error in one row, reading
// continues with the following line. A UserError that `use` throws is rethrown as "file:12: ...". With
// skip_bad_rows it is counted instead, and a warning gives the number of skipped rows and the first error. Throws
// UserError if no row of a file remains.
void for_each_row(const std::vector<std::string>& patterns, const RowUse& use);

// Parses a whole number from 0 to end-1. Throws UserError naming `what` for anything else.
std::int64_t parse_index(std::string_view text, std::int64_t end, std::string_view what);

}  // namespace headroom::data
