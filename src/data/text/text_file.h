// Readers of single text files, and the sequence of files that open_text() returns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "foundation/core/files/byte_reader.h"
#include "text.h"

namespace headroom::data {

// Reads one file as validated text.
class TextFile {
 public:
  virtual ~TextFile() = default;
  // Appends the next part of the text; returns false at the end. A part may end inside a character, but the whole text
  // is valid UTF-8. Sets `starts_document` if a document begins with this part; the caller then inserts a separator.
  virtual bool more(std::string& text, bool& starts_document) = 0;
  virtual std::int64_t consumed() const = 0;  // bytes of the file read so far
  struct BadRows {
    std::int64_t count = 0;
    std::string first;  // error message of the first one
  };
  virtual BadRows bad_rows() const { return {}; }  // rows skipped so far
};

enum class FileKind { plain, json_lines, lenient, bytes };

// Throws UserError naming file and byte if the file is empty, binary (has a NUL byte) or invalid UTF-8; `content` bytes
// allows invalid UTF-8.
std::unique_ptr<TextFile> open_plain_text(const std::filesystem::path& path, Content content = Content::utf8);

struct TextFileInput {
  std::filesystem::path path;
  FileKind kind = FileKind::plain;
  std::int64_t size = 0;  // bytes on disk
};

// Opens a file of any kind. `json_field` and `skip_bad_rows` apply to JSON lines only.
std::unique_ptr<TextFile> open_text_file(const TextFileInput& input, const std::string& json_field, bool skip_bad_rows);

// Concatenates text files and returns the text in blocks. Short documents are combined, so that each has at least
// 1/4096 of the text, between 2 and 32 KiB, or 1/64 of a text below 128 KiB. Files of more than 1/64 of the text are
// cut into documents, after blank lines if possible.
class FileSequence : public tokenizers::TextSource {
 public:
  // `json_field`, `separator` and `skip_bad_rows` apply to JSON lines only. The number of skipped rows is logged as one
  // warning per file.
  FileSequence(std::vector<TextFileInput> inputs, std::string json_field, std::string separator,
               bool skip_bad_rows = false);
  bool next(std::string& block) override;
  std::span<const std::size_t> document_starts() const override { return block_starts_; }
  void rewind() override;
  std::int64_t bytes_read() const override { return done_ + (current_ ? current_->consumed() : 0); }
  std::int64_t bytes_total() const override { return total_; }
  std::string fingerprint() const override;

 private:
  std::size_t block_end() const;
  bool fill();
  void separate(std::size_t at, bool starts_document);
  void start_document(std::size_t at);
  void find_starts();
  void take_starts(std::size_t size);
  void warn_of_bad_rows();

  std::vector<TextFileInput> inputs_;
  std::string json_field_, separator_;
  bool skip_bad_rows_;
  std::size_t warned_ = 0;  // number of files whose skipped rows were logged
  std::unique_ptr<TextFile> current_;
  std::size_t index_ = 0;              // index of current_ in inputs_
  std::int64_t total_ = 0, done_ = 0;  // bytes of all files, of the files before current_
  std::string pending_;                // text read; the part from taken_ on has not been returned
  std::size_t taken_ = 0;
  char last_ = '\n';                             // last character of the text so far
  bool any_text_ = false, file_begins_ = false;  // file_begins_: no text of current_ has been read yet
  std::int64_t document_bytes_ = 0;              // minimum size of a document
  // Positions in pending_: starts of documents that have not been returned; the last start, which may have been
  // returned and be negative; the first line that has not been searched for the end of a document.
  std::vector<std::size_t> starts_;
  std::int64_t document_ = 0, line_ = 0;
  std::vector<std::size_t> block_starts_;  // starts in the last block
};

// Reads a text file, which may be gzip or zstd, line by line. Skips a byte order mark.
class LineReader {
 public:
  explicit LineReader(const std::filesystem::path& path, std::size_t longest = std::size_t{1} << 20);
  // Reads the next line, without its LF or CRLF; returns false at the end. Throws UserError naming file and line if the
  // line has more than `longest` bytes.
  bool next(std::string& line);
  std::string place() const;  // "file:12", for the last line
  std::int64_t consumed() const { return bytes_->consumed(); }

 private:
  std::string path_;
  std::size_t longest_;
  std::unique_ptr<ByteReader> bytes_;
  std::vector<char> buffer_;
  std::size_t at_ = 0, end_ = 0;  // unread part of the buffer
  std::int64_t number_ = 0;       // number of the last line, from 1
};

}  // namespace headroom::data
