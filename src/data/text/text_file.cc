#include "text_file.h"

#include <optional>
#include <vector>

#include "foundation/core/files/byte_reader.h"
#include "foundation/core/text/utf8.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/core/json.h"

namespace headroom::data {
namespace {

constexpr std::size_t kStretch = std::size_t{64} << 10;
constexpr std::size_t kLongestJsonLine = std::size_t{256} << 20;
constexpr std::size_t kLongestSource = std::size_t{16} << 20;

// The file's bytes, without NUL, known to be UTF-8 unless it is one of bytes.
class CheckedBytes {
 public:
  explicit CheckedBytes(const std::filesystem::path& path, Content content = Content::utf8)
      : path_(path.string()), content_(content), reader_(open_bytes(path)), buffer_(kStretch) {}

  // The next stretch, empty at the end.
  std::string_view next() {
    std::string_view got(buffer_.data(), reader_->read(buffer_.data(), buffer_.size()));
    if (const std::size_t zero = got.find('\0'); zero != std::string_view::npos) {
      user_error("{}: is not text but binary: byte {} is 0", path_, read_ + static_cast<std::int64_t>(zero));
    }
    const auto wrong = got.empty() ? checker_.finish() : checker_.feed(got);
    if (wrong && content_ == Content::utf8) {
      user_error("{}: is not valid UTF-8 from byte {} on", path_, *wrong);
    }
    const bool first = read_ == 0;
    read_ += static_cast<std::int64_t>(got.size());
    if (first && got.starts_with(kByteOrderMark)) {
      got.remove_prefix(kByteOrderMark.size());
    }
    if (first && got.empty()) {
      user_error("{}: is empty", path_);
    }
    return got;
  }
  std::int64_t consumed() const { return reader_->consumed(); }

 private:
  std::string path_;
  Content content_;
  std::unique_ptr<ByteReader> reader_;
  std::vector<char> buffer_;
  Utf8Checker checker_;
  std::int64_t read_ = 0;
};

class PlainText : public TextFile {
 public:
  PlainText(const std::filesystem::path& path, Content content) : bytes_(path, content) {}
  bool more(std::string& text, bool& starts) override {
    const std::string_view got = bytes_.next();
    text += got;
    starts = false;
    return !got.empty();
  }
  std::int64_t consumed() const override { return bytes_.consumed(); }

 private:
  CheckedBytes bytes_;
};

class JsonLines : public TextFile {
 public:
  JsonLines(const std::filesystem::path& path, std::string field, bool skip)
      : path_(path.string()), field_(std::move(field)), skip_(skip), bytes_(path) {}

  bool more(std::string& text, bool& starts) override {
    while (next_line()) {
      const std::optional<std::string> document = skip_ ? read_or_skip() : read_document();
      if (document) {
        text += *document;
        starts = true;
        any_ = true;
        return true;
      }
    }
    if (!any_) {
      user_error("{}: holds no text: no line has a document in \"{}\"", path_, field_);
    }
    return false;
  }
  std::int64_t consumed() const override { return bytes_.consumed(); }
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

  // Leaves the next line, without its end, in line_.
  bool next_line() {
    line_.clear();
    ++number_;
    while (true) {
      const std::size_t end = rest_.find('\n');
      line_ += rest_.substr(0, end);
      if (line_.size() > kLongestJsonLine) {
        user_error("{}:{}: is longer than {} MiB", path_, number_, kLongestJsonLine >> 20);
      }
      if (end != std::string_view::npos) {
        rest_.remove_prefix(end + 1);
        return true;
      }
      rest_ = ended_ ? std::string_view() : bytes_.next();
      ended_ = rest_.empty();
      if (ended_) {
        return !line_.empty();
      }
    }
  }

  std::optional<std::string> read_document() const {
    if (line_.find_first_not_of(" \t\r") == std::string::npos) {
      return std::nullopt;
    }
    const std::string origin = fmt::format("{}:{}", path_, number_);
    const Json value = parse_json(line_, origin);
    if (!value.is_object()) {
      user_error("{}: must be a JSON object, got {}", origin, value.type_name());
    }
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
  CheckedBytes bytes_;
  std::string_view rest_;  // of the stretch read last
  std::string line_;
  std::int64_t number_ = 0;
  bool ended_ = false, any_ = false;
};

class LenientText : public TextFile {
 public:
  explicit LenientText(std::filesystem::path path) : path_(std::move(path)) {}
  bool more(std::string& text, bool& starts) override {
    if (read_) {
      return false;
    }
    read_ = true;
    starts = false;
    try {
      const std::string all = read_text_file(path_, kLongestSource);
      if (!all.empty() && all.find('\0') == std::string::npos && is_utf8(all)) {
        text += all;
        return true;
      }
    } catch (const UserError&) {
      // too long or unreadable: not part of the corpus
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

std::unique_ptr<TextFile> open_json_lines(const std::filesystem::path& path, const std::string& field,
                                          bool skip_bad_rows) {
  return std::make_unique<JsonLines>(path, field, skip_bad_rows);
}

std::unique_ptr<TextFile> open_leniently(const std::filesystem::path& path) {
  return std::make_unique<LenientText>(path);
}

}  // namespace headroom::data
