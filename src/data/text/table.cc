#include "table.h"

#include <filesystem>
#include <memory>
#include <utility>

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

class TableReader {
 public:
  explicit TableReader(const std::filesystem::path& path)
      : path_(path.string()),
        quotes_(file_ending(path) == ".csv"),
        separator_(quotes_ ? ',' : '\t'),
        file_(open_plain_text(path)) {}

  // Reads the next row; returns false at the end. After BadRow, continues with the second line of that row, so that an
  // unclosed quote does not swallow later lines.
  bool next(std::vector<std::string>& fields) {
    if (std::exchange(after_bad_row_, false)) {
      while (peek() != kEndOfFile && peek() != '\n') {
        row_ = ++at_;
      }
      get();
    }
    while (peek() != kEndOfFile) {
      read_row(fields);
      if (fields.size() > 1 || !fields.front().empty()) {
        return true;
      }
    }
    return false;
  }
  std::string place() const { return fmt::format("{}:{}", path_, begun_); }  // "file:12", for the last row

 private:
  // Returns the next character without consuming it.
  int peek() {
    while (at_ == text_.size()) {
      text_.erase(0, row_);
      at_ -= row_;
      row_ = 0;
      bool starts_document = false;
      if (!file_->more(text_, starts_document)) {
        return kEndOfFile;
      }
    }
    return static_cast<unsigned char>(text_[at_]);
  }
  int get() {
    const int c = peek();
    if (c != kEndOfFile) {
      ++at_;
      line_ += c == '\n' ? 1 : 0;
      if (at_ - row_ > kLongestRow) {
        refuse("is longer than {} MiB", kLongestRow >> 20);
      }
    }
    return c;
  }
  bool at_line_end() {
    if (peek() == '\r') {  // part of the line end only before LF
      ++at_;
      if (peek() != '\n' && peek() != kEndOfFile) {
        --at_;
        return false;
      }
    }
    return peek() == '\n' || peek() == kEndOfFile;
  }
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
    const std::string why = fmt::format(format, std::forward<Args>(args)...);
    at_ = row_;
    line_ = begun_;
    after_bad_row_ = true;
    throw BadRow(fmt::format("{}:{}: {}", path_, begun_, why));
  }

  std::string quoted_field() {
    const std::int64_t opened = line_;
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
    if (!at_line_end() && peek() != separator_) {
      refuse("after a quoted field must come a comma or the line's end, got \"{}\"", static_cast<char>(peek()));
    }
    return field;
  }

  std::string field() {
    if (quotes_ && peek() == '"') {
      return quoted_field();
    }
    std::string field;
    while (!at_line_end() && peek() != separator_) {
      const int c = get();
      if (quotes_ && c == '"') {
        refuse("a field with a quote in it must begin with one");
      }
      field += static_cast<char>(c);
    }
    return field;
  }

  void read_row(std::vector<std::string>& fields) {
    begun_ = line_;
    row_ = at_;
    fields.clear();
    fields.push_back(field());
    while (peek() == separator_) {
      get();
      fields.push_back(field());
    }
    get();  // consume the line end
  }

  std::string path_;
  bool quotes_, after_bad_row_ = false;
  char separator_;
  std::unique_ptr<TextFile> file_;
  std::string text_;  // buffer, consumed up to at_; contains the whole current row
  std::size_t at_ = 0, row_ = 0;
  std::int64_t line_ = 1, begun_ = 0;  // line of the next character; line where the last row begins
};

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
