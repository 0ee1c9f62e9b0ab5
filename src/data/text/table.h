// Reads the rows of CSV and TSV files.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::data {

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
