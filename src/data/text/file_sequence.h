// Text files strung together and handed out in blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "text.h"
#include "text_file.h"

namespace headroom::data {

enum class FileKind { plain, json_lines, lenient, bytes };

struct Input {
  std::filesystem::path path;
  FileKind kind = FileKind::plain;
  std::int64_t size = 0;  // bytes on disk
};

class FileSequence : public tokenizers::TextSource {
 public:
  // `skip_bad_rows`: of JSON lines; a warning says how many once the first pass has come to the end of their file.
  FileSequence(std::vector<Input> inputs, std::string json_field, std::string separator, bool skip_bad_rows = false);

  bool next(std::string& block) override;
  void rewind() override;
  std::int64_t bytes_read() const override { return done_ + (current_ ? current_->consumed() : 0); }
  std::int64_t bytes_total() const override { return total_; }
  std::string fingerprint() const override;

 private:
  std::size_t block_end() const;
  bool fill();
  void set_apart(std::size_t at, bool starts);
  std::unique_ptr<TextFile> open(const Input& input) const;
  void warn_of_bad_rows();

  std::vector<Input> inputs_;
  std::string json_field_, separator_;
  bool skip_bad_rows_;
  std::size_t told_ = 0;  // files whose bad rows were told of
  std::unique_ptr<TextFile> current_;
  std::size_t index_ = 0;              // of current_ in inputs_
  std::int64_t total_ = 0, done_ = 0;  // bytes of all files, of those before current_
  std::string pending_;                // read but not yet handed out, from taken_ on
  std::size_t taken_ = 0;
  char last_ = '\n';                    // of the text so far
  bool begun_ = false, fresh_ = false;  // any text yet; none yet of the current file
};

}  // namespace headroom::data
