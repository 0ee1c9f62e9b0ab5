#include "text_file.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "foundation/core/text/utf8.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/core/json.h"

namespace headroom::data {
namespace {

constexpr std::size_t kReadSize = std::size_t{64} << 10;
constexpr std::size_t kLongestJsonLine = std::size_t{256} << 20;
constexpr std::size_t kLongestSource = std::size_t{16} << 20;

// Reads a file without its byte order mark. Rejects NUL bytes and, unless the content is bytes, invalid UTF-8.
class PlainText : public TextFile {
 public:
  PlainText(const std::filesystem::path& path, Content content)
      : path_(path.string()), content_(content), reader_(open_bytes(path)), buffer_(kReadSize) {}

  bool more(std::string& text, bool& starts_document) override {
    // Fills the first buffer, because a byte order mark may be split over several reads.
    std::string_view got(buffer_.data(),
                         read_ == 0 ? read_full(*reader_, buffer_) : reader_->read(buffer_.data(), buffer_.size()));
    if (const std::size_t zero = got.find('\0'); zero != std::string_view::npos) {
      user_error("{}: is not text but binary: byte {} is 0", path_, read_ + static_cast<std::int64_t>(zero));
    }
    const auto wrong = got.empty() ? checker_.finish() : checker_.feed(got);
    if (wrong && content_ == Content::utf8) {
      user_error("{}: is not valid UTF-8 from byte {} on", path_, *wrong);
    }
    const bool first = read_ == 0;
    read_ += static_cast<std::int64_t>(got.size());
    if (first) {
      got = without_byte_order_mark(got);
      if (got.empty()) {
        user_error("{}: is empty", path_);
      }
    }
    text += got;
    starts_document = false;
    return !got.empty();
  }
  std::int64_t consumed() const override { return reader_->consumed(); }

 private:
  std::string path_;
  Content content_;
  std::unique_ptr<ByteReader> reader_;
  std::vector<char> buffer_;
  Utf8Checker checker_;
  std::int64_t read_ = 0;
};

// Reads one document per line, from a string field of a JSON object.
class JsonLines : public TextFile {
 public:
  JsonLines(const std::filesystem::path& path, std::string field, bool skip)
      : path_(path.string()), field_(std::move(field)), skip_(skip), lines_(path, kLongestJsonLine) {}

  bool more(std::string& text, bool& starts_document) override {
    while (lines_.next(line_)) {
      const std::optional<std::string> document = skip_ ? read_or_skip() : read_document();
      if (document) {
        text += *document;
        starts_document = true;
        any_ = true;
        return true;
      }
    }
    if (!any_) {
      user_error("{}: holds no text: no line has a text in field \"{}\"", path_, field_);
    }
    return false;
  }
  std::int64_t consumed() const override { return lines_.consumed(); }
  BadRows bad_rows() const override { return bad_; }

 private:
  std::optional<std::string> read_or_skip() {
    try {
      return read_document();
    } catch (const UserError& error) {
      bad_.first = bad_.count++ == 0 ? error.what() : bad_.first;
      return std::nullopt;
    }
  }

  std::optional<std::string> read_document() const {
    if (line_.find_first_not_of(" \t\r") == std::string::npos) {
      return std::nullopt;
    }
    const std::string origin = lines_.place();
    const Json value = parse_json_line(line_, origin);
    const auto found = value.find(field_);
    if (found == value.end()) {
      user_error("{}: has no field \"{}\" (data.json_field)", origin, field_);
    }
    if (!found->is_string()) {
      user_error("{}: field \"{}\" (data.json_field) must be a string, got {}", origin, field_, found->type_name());
    }
    std::string document = found->get<std::string>();
    return document.empty() ? std::nullopt : std::optional(std::move(document));
  }

  std::string path_, field_;
  bool skip_;
  BadRows bad_;
  LineReader lines_;
  std::string line_;
  bool any_ = false;
};

// A file read at once. Files that are unreadable, empty, too long or invalid give no text instead of an error.
class LenientText : public TextFile {
 public:
  explicit LenientText(std::filesystem::path path) : path_(std::move(path)) {}
  bool more(std::string& text, bool& starts_document) override {
    if (read_) {
      return false;
    }
    read_ = true;
    starts_document = false;
    try {
      const std::string all = read_text_file(path_, kLongestSource);
      if (!all.empty() && all.find('\0') == std::string::npos && is_utf8(all)) {
        text += all;
        return true;
      }
    } catch (const UserError&) {
      // too long or unreadable: skipped
    }
    return false;
  }
  std::int64_t consumed() const override { return 0; }

 private:
  std::filesystem::path path_;
  bool read_ = false;
};

}  // namespace

std::unique_ptr<TextFile> open_plain_text(const std::filesystem::path& path, Content content) {
  return std::make_unique<PlainText>(path, content);
}

std::unique_ptr<TextFile> open_text_file(const TextFileInput& input, const std::string& json_field,
                                         bool skip_bad_rows) {
  switch (input.kind) {
    case FileKind::json_lines:
      return std::make_unique<JsonLines>(input.path, json_field, skip_bad_rows);
    case FileKind::lenient:
      return std::make_unique<LenientText>(input.path);
    case FileKind::bytes:
      return open_plain_text(input.path, Content::bytes);
    case FileKind::plain:
      return open_plain_text(input.path, Content::utf8);
  }
  fail("text: unknown kind of file");
}

LineReader::LineReader(const std::filesystem::path& path, std::size_t longest)
    : path_(path.string()), longest_(longest), bytes_(open_bytes(path)), buffer_(kReadSize) {}

bool LineReader::next(std::string& line) {
  line.clear();
  bool any = false;
  ++number_;
  while (true) {
    if (at_ == end_) {
      at_ = 0;
      end_ = bytes_->read(buffer_.data(), buffer_.size());
      if (end_ == 0) {
        number_ -= any ? 0 : 1;
        break;
      }
    }
    any = true;
    const auto begin = buffer_.begin() + static_cast<std::ptrdiff_t>(at_),
               end = buffer_.begin() + static_cast<std::ptrdiff_t>(end_), line_end = std::find(begin, end, '\n');
    line.append(begin, line_end);
    at_ = static_cast<std::size_t>(line_end - buffer_.begin());
    if (line.size() > longest_) {
      user_error("{}: is longer than {} MiB", place(), longest_ >> 20);
    }
    if (line_end != end) {
      ++at_;
      break;
    }
  }
  if (line.ends_with('\r')) {
    line.pop_back();
  }
  if (number_ == 1) {
    line.erase(0, line.size() - without_byte_order_mark(line).size());
  }
  return any;
}

std::string LineReader::place() const {
  return fmt::format("{}:{}", path_, number_);
}

}  // namespace headroom::data
