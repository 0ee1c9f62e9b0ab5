// Rows of CSV and TSV files, one after the other.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::data {

// UTF-8 text, also gzip, a byte order mark at its beginning skipped. Names ending in .csv (or .csv.gz) hold commas and
// quoted fields as in RFC 4180: a quoted field may span lines, a quote in it is doubled. In all others tabs separate
// fields and a quote is a character like any other. Lines end with LF or CRLF; empty ones are skipped.
class TableReader {
 public:
  // Throws UserError naming the file when it cannot be opened.
  explicit TableReader(const std::filesystem::path& path);
  ~TableReader();

  // False at the end. Throws UserError naming file and line: a quote that is never closed, characters next to a
  // quoted field, a row of more than 64 MiB, a NUL byte, text that is not UTF-8. After a complaint about a row, next()
  // continues with the following one.
  bool next(std::vector<std::string>& row);
  // "file:12", of the row read last.
  std::string place() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

struct RowUse {
  // Whether the first row of a file names the columns, rather than being one of them; its errors are never skipped.
  std::function<bool(const std::vector<std::string>& row)> header;
  std::function<void(const std::vector<std::string>& row)> row;
  bool skip_bad_rows = false;
};

// Every row of the files, in order. What `use` throws as a UserError says what is wrong with a row: the message
// becomes "file:12: ..." and leaves this function or, with skip_bad_rows, is counted, and a warning says how many rows
// were left out and why the first was. Throws UserError when no row of a file is left.
void for_each_row(const std::vector<std::string>& patterns, const RowUse& use);

// A whole number, with nothing else around it, of 0 up to below `end`; throws UserError naming `what` otherwise.
std::int64_t parse_index(std::string_view text, std::int64_t end, std::string_view what);

}  // namespace headroom::data
