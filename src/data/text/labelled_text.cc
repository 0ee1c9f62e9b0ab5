#include "labelled_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include "foundation/core/machine/log.h"
#include "foundation/core/text/format.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "text.h"
#include "text_file.h"
#include "token_cache.h"

namespace headroom::data {
namespace {

void add_to(Sha256& hash, const Sequences& sequences) {
  for (std::int64_t i = 0; i < sequences.size(); ++i) {
    const std::int64_t length = sequences.length(i);
    hash.update(std::as_bytes(std::span(&length, 1)));
    hash.update(std::as_bytes(sequences.at(i)));
  }
}

bool is_number(const std::string& column) {
  return !column.empty() && column.find_first_not_of("0123456789") == std::string::npos;
}

// The index of a column, given as a number or looked up in the header of a file.
class ColumnIndex {
 public:
  ColumnIndex(std::string key, std::string name) : key_(std::move(key)), name_(std::move(name)) {
    constexpr std::int64_t kMostColumns = 1 << 20;
    if (is_number(name_)) {
      place_ = static_cast<std::size_t>(parse_index(name_, kMostColumns, key_));
      if (place_ == 0) {
        user_error("{}: columns are counted from 1, got 0", key_);
      }
      --place_;
    }
  }
  bool named() const { return !is_number(name_); }
  void find(const std::vector<std::string>& header) {
    if (!named()) {
      return;
    }
    const auto found = std::ranges::find(header, name_);
    if (found == header.end()) {
      user_error("has no column \"{}\" ({}), only {}", name_, key_, fmt::join(header, ", "));
    }
    if (std::find(found + 1, header.end(), name_) != header.end()) {
      user_error("has more than one column \"{}\" ({}): give its number", name_, key_);
    }
    place_ = static_cast<std::size_t>(found - header.begin());
  }
  const std::string& of(const std::vector<std::string>& row) const {
    if (place_ >= row.size()) {
      user_error("must have a column {} ({}), got {} columns", place_ + 1, key_, row.size());
    }
    return row[place_];
  }
  const std::string& key() const { return key_; }

 private:
  std::string key_, name_;
  std::size_t place_ = 0;
};

std::int32_t class_of(const std::string& label, const std::vector<std::string>& classes, std::int64_t n_classes) {
  if (classes.empty()) {
    return static_cast<std::int32_t>(parse_index(label, n_classes, "the label (names need data.classes)"));
  }
  const auto found = std::ranges::find(classes, label);
  if (found == classes.end()) {
    constexpr std::size_t kShown = 40;
    user_error("the label must be one of data.classes ({}), got \"{}\"", fmt::join(classes, ", "),
               label.substr(0, kShown));
  }
  return static_cast<std::int32_t>(found - classes.begin());
}

void add_text(const std::string& text, const ColumnIndex& column, std::int64_t most, Sequences& sequences) {
  if (text.empty()) {
    user_error("the text ({}) is empty", column.key());
  }
  const std::size_t length = std::min(text.size(), static_cast<std::size_t>(most));
  std::vector<std::uint16_t> tokens(length);
  std::transform(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(length), tokens.begin(),
                 [](char c) { return static_cast<unsigned char>(c); });
  sequences.add(tokens);
}

}  // namespace

void Sequences::add(std::span<const std::uint16_t> tokens) {
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  ends_.push_back(tokens_.size());
}

std::span<const std::uint16_t> Sequences::at(std::int64_t i) const {
  const auto place = static_cast<std::size_t>(i);
  const std::size_t begin = place == 0 ? 0 : ends_.at(place - 1);
  return std::span(tokens_).subspan(begin, ends_.at(place) - begin);
}

std::int64_t LabelledSequences::length(std::int64_t i) const {
  return std::max(first.length(i), second.size() > 0 ? second.length(i) : 0);
}

std::string LabelledSequences::identity() const {
  Sha256 hash;
  add_to(hash, first);
  add_to(hash, second);
  hash.update(std::as_bytes(std::span(labels)));
  return fmt::format("{} examples, {}", size(), dataset_id(hash));
}

LabelledSequences read_labelled_text(const std::vector<std::string>& patterns, const config::DataOptions& options,
                                     const LabelledTextReading& reading) {
  if (!options.classes.empty() && std::ssize(options.classes) != reading.n_classes) {
    user_error("data.classes: must name model.n_classes = {} classes, got {}", reading.n_classes,
               options.classes.size());
  }
  ColumnIndex label("data.label_column", options.label_column), text("data.text_column", options.text_column);
  ColumnIndex second("data.second_column", reading.paired ? options.second_column : "1");
  LabelledSequences read;
  std::size_t columns = 0;  // number of columns in the first line of the current file
  RowUse use{.header = {}, .row = {}, .skip_bad_rows = options.skip_bad_rows};
  use.header = [&](const std::vector<std::string>& row) {
    columns = row.size();
    for (ColumnIndex* column : {&label, &text, &second}) {
      column->find(row);
    }
    return label.named() || text.named() || second.named();
  };
  use.row = [&](const std::vector<std::string>& row) {
    if (row.size() > columns) {  // an unquoted separator inside a text would truncate it
      user_error("must have {} columns like the first line of the file, got {}", columns, row.size());
    }
    const std::int32_t number = class_of(label.of(row), options.classes, reading.n_classes);
    const std::string& a = text.of(row);
    const std::string& b = second.of(row);  // unpaired: column 0, which always exists and is ignored
    if (reading.paired && b.empty()) {
      user_error("the text ({}) is empty", second.key());
    }
    add_text(a, text, reading.most_bytes, read.first);
    if (reading.paired) {
      add_text(b, second, reading.most_bytes, read.second);
    }
    read.labels.push_back(number);
  };
  for_each_row(patterns, use);
  return read;
}

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
