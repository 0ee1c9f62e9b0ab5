#include "table.h"

#include "foundation/core/machine/log.h"
#include "foundation/core/text/format.h"
#include "headroom/core/error.h"
#include "text.h"
#include "text_file.h"

namespace headroom::data {
namespace {

constexpr std::size_t kLongestRow = std::size_t{64} << 20;
constexpr int kEndOfFile = -1;

// An error in one row. All other errors concern the whole file.
class BadRow : public UserError {
  using UserError::UserError;
};

bool is_csv(const std::filesystem::path& path) {
  return file_ending(path) == ".csv";
}

}  // namespace

struct TableReader::Parts {
  std::string path;
  bool quotes = false;
  char separator = 0;
  std::unique_ptr<TextFile> file;
  std::string text;  // buffer, consumed up to `at`; contains the whole current row
  std::size_t at = 0, row = 0;
  std::int64_t line = 1, begun = 0;  // line of the next character; line where the last row begins

  // Returns the next character without consuming it.
  int peek() {
    while (at == text.size()) {
      text.erase(0, row);
      at -= row;
      row = 0;
      bool starts_document = false;
      if (!file->more(text, starts_document)) {
        return kEndOfFile;
      }
    }
    return static_cast<unsigned char>(text[at]);
  }
  int get() {
    const int c = peek();
    if (c != kEndOfFile) {
      ++at;
      line += c == '\n' ? 1 : 0;
      if (at - row > kLongestRow) {
        refuse("is longer than {} MiB", kLongestRow >> 20);
      }
    }
    return c;
  }
  bool at_line_end() {
    if (peek() == '\r') {  // part of the line end only before LF
      ++at;
      if (peek() != '\n' && peek() != kEndOfFile) {
        return false;
      }
    }
    return peek() == '\n' || peek() == kEndOfFile;
  }
  // Throws BadRow. Reading resumes after the first line of the row, so an unclosed quote does not swallow later lines.
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
    const std::string why = fmt::format(format, std::forward<Args>(args)...);
    at = row;
    line = begun;
    while (peek() != kEndOfFile && peek() != '\n') {
      row = ++at;
    }
    get();
    throw BadRow(fmt::format("{}:{}: {}", path, begun, why));
  }

  std::string quoted_field() {
    const std::int64_t opened = line;
    get();
    std::string field;
    for (int c = get();; c = get()) {
      if (c == kEndOfFile) {
        refuse("the quoted field that begins in line {} never ends", opened);
      }
      if (c == '"') {
        if (peek() != '"') {
          break;
        }
        get();
      }
      field += static_cast<char>(c);
    }
    if (!at_line_end() && peek() != separator) {
      refuse("after a quoted field must come a comma or the line's end, got \"{}\"", static_cast<char>(peek()));
    }
    return field;
  }

  std::string field() {
    if (quotes && peek() == '"') {
      return quoted_field();
    }
    std::string field;
    while (!at_line_end() && peek() != separator) {
      const int c = get();
      if (quotes && c == '"') {
        refuse("a field with a quote in it must begin with one");
      }
      field += static_cast<char>(c);
    }
    return field;
  }

  void read_row(std::vector<std::string>& fields) {
    begun = line;
    row = at;
    fields.clear();
    fields.push_back(field());
    while (peek() == separator) {
      get();
      fields.push_back(field());
    }
    get();  // consume the line end
  }
};

TableReader::TableReader(const std::filesystem::path& path) : parts_(std::make_unique<Parts>()) {
  Parts& p = *parts_;
  p.path = path.string();
  p.quotes = is_csv(path);
  p.separator = p.quotes ? ',' : '\t';
  p.file = open_plain_text(path);
}
TableReader::~TableReader() = default;

bool TableReader::next(std::vector<std::string>& row) {
  while (parts_->peek() != kEndOfFile) {
    parts_->read_row(row);
    if (row.size() > 1 || !row.front().empty()) {
      return true;
    }
  }
  return false;
}

std::string TableReader::place() const {
  return fmt::format("{}:{}", parts_->path, parts_->begun);
}

namespace {

class FileRows {
 public:
  FileRows(const std::filesystem::path& path, const RowUse& use) : path_(path.string()), reader_(path), use_(use) {}

  void read() {
    std::vector<std::string> row;
    for (bool first = true; next(row); first = false) {
      if (first && use_.header && is_header(row)) {
        continue;
      }
      ++rows_;
      try {
        use_.row(row);
      } catch (const UserError& error) {
        note(at_place(error));
      }
    }
    if (bad_ == rows_) {
      user_error("{}: has no usable row{}", path_, bad_ > 0 ? ": " + complaint_ : "");
    }
    if (bad_ > 0) {
      log_warning("{}: {} of {} rows were left out; the first: {}", path_, bad_, rows_, complaint_);
    }
  }

 private:
  bool next(std::vector<std::string>& row) {
    while (true) {
      try {
        return reader_.next(row);
      } catch (const BadRow& error) {
        ++rows_;
        note(error.what());
      }
    }
  }
  bool is_header(const std::vector<std::string>& row) const {
    try {
      return use_.header(row);
    } catch (const UserError& error) {
      throw UserError(at_place(error));
    }
  }
  std::string at_place(const UserError& error) const { return fmt::format("{}: {}", reader_.place(), error.what()); }
  void note(const std::string& why) {
    if (!use_.skip_bad_rows) {
      throw UserError(why);
    }
    complaint_ = bad_++ == 0 ? why : complaint_;
  }

  std::string path_;
  TableReader reader_;
  const RowUse& use_;
  std::string complaint_;  // error message of the first bad row
  std::int64_t bad_ = 0, rows_ = 0;
};

}  // namespace

void for_each_row(const std::vector<std::string>& patterns, const RowUse& use) {
  for (const std::filesystem::path& path : expand_patterns(patterns)) {
    FileRows(path, use).read();
  }
}

std::int64_t parse_index(std::string_view text, std::int64_t end, std::string_view what) {
  const std::optional<std::int64_t> value = whole_number(text);
  if (!value || *value >= end) {
    constexpr std::size_t kShown = 40;
    user_error("{} must be a number from 0 to {}, got \"{}\"", what, end - 1, text.substr(0, kShown));
  }
  return *value;
}

}  // namespace headroom::data
