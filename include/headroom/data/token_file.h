// Token files: a long sequence of ids on disk, mapped into memory, with its tokenizer's name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "headroom/core/safetensors.h"
#include "headroom/data/text.h"
#include "headroom/data/tokenizer.h"

namespace headroom::data {

class TokenFile {
 public:
  // Maps and checks the file: format, dtype (U16 or I32), a tokenizer's name, at least one token. Ids are checked
  // against `vocabulary_size` as they are read. Throws MisuseError naming the file.
  explicit TokenFile(const std::filesystem::path& path);

  std::int64_t size() const { return size_; }              // tokens
  std::int64_t text_bytes() const { return text_bytes_; }  // UTF-8 bytes that these tokens encode
  std::int64_t vocabulary_size() const { return vocabulary_size_; }
  const std::string& tokenizer_name() const { return tokenizer_name_; }
  const std::filesystem::path& path() const { return file_.path(); }
  // Copies tokens [begin, begin+count) to `out`. Throws MisuseError for an id outside the vocabulary.
  void copy(std::int64_t begin, std::int64_t count, std::int32_t* out) const;

 private:
  SafetensorsFile file_;
  const StoredTensor* tokens_;
  std::int64_t size_ = 0, text_bytes_ = 0, vocabulary_size_ = 0;
  std::string tokenizer_name_;
};

// Encodes `text` to a token file, holding only a block at a time; shows progress. Throws MisuseError when no token
// comes out.
void write_token_file(TextSource& text, const Tokenizer& tokenizer, const std::filesystem::path& path);

// True when `path` is a token file rather than text (by its name, `.tokens` or `.safetensors`).
bool is_token_file(const std::string& path);

// What a run reads: its tokenizer and both parts as token files, made on first use and kept under `cache_folder`
// by a name that changes with the text and the tokenizer's options.
struct PreparedData {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::filesystem::path train, validation;
};
PreparedData prepare_data(const config::DataOptions& data, const config::TokenizerOptions& tokenizer,
                          const std::filesystem::path& cache_folder);

}  // namespace headroom::data
