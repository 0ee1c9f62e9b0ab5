// Token files: a long sequence of ids on disk, mapped into memory, with the tokenizer that made them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/text/text.h"
#include "headroom/core/safetensors.h"
#include "headroom/tokenizers/tokenizer.h"

namespace headroom::data {

// A safetensors file. Tensors: "tokens" [n], U16 where the vocabulary has at most 65536 ids, else I32; "tokenizer"
// [bytes] U8, tokenizers::Tokenizer::serialised(). Metadata: format "headroom.tokens.1", tokenizer_name,
// tokenizer_kind, vocabulary_size, text_bytes, decoded_bytes, unknown_tokens, unknown_bytes, checksum (CRC-32 of the
// tokens' bytes).
// So a prepared file alone is enough to train from.
class TokenFile {
 public:
  // Maps and checks the file: format, dtype, metadata, at least one token. Ids are checked against `vocabulary_size`
  // as they are read. Throws UserError naming the file. `name`: what messages call the text, where it is not the
  // user who named this file.
  // `first`: only so many tokens from the beginning; 0: all.
  explicit TokenFile(const std::filesystem::path& path, std::string name = {}, std::int64_t first = 0);

  std::int64_t size() const { return size_; }              // tokens
  std::int64_t text_bytes() const { return text_bytes_; }  // UTF-8 bytes of the whole file's text
  // What the tokenizer lost of the text; nothing where the file does not say: it is of an earlier version, or of a part
  // whose text cannot be told from its tokens, as those bytes then cannot.
  const std::optional<tokenizers::Unknown>& unknown() const { return unknown_; }
  // Bytes that the whole file's tokens stand for (Tokenizer::decoded_bytes()); 0 where unknown() is nothing.
  std::int64_t decoded_bytes() const { return decoded_bytes_; }
  std::int64_t vocabulary_size() const { return vocabulary_size_; }
  const std::string& tokenizer_name() const { return tokenizer_name_; }
  const std::filesystem::path& path() const { return file_.path(); }
  const std::string& name() const { return name_; }
  // Copies tokens [begin, begin+count) to `out`. Throws UserError for an id outside the vocabulary, Error for a
  // range outside the file.
  void copy(std::int64_t begin, std::int64_t count, std::int32_t* out) const;
  // Reads all of it. Throws UserError where the tokens do not have the checksum that they were written with; files of
  // earlier versions have none, and nothing is known of them.
  void verify() const;
  // The tokenizer inside. Throws UserError when it is not the one that the file names.
  std::unique_ptr<tokenizers::Tokenizer> tokenizer() const;

 private:
  SafetensorsFile file_;
  const StoredTensor* tokens_;
  std::int64_t size_ = 0, text_bytes_ = 0, decoded_bytes_ = 0, vocabulary_size_ = 0;
  std::optional<tokenizers::Unknown> unknown_;
  std::string tokenizer_name_, name_;
};

// Encodes `text` from its beginning to a token file with several threads, holding only a few blocks at a time; shows
// progress. The file does not depend on the number of threads (0: all physical cores). Throws UserError when no
// token comes out, InterruptedError on Ctrl-C; no file is left then.
void write_token_file(tokenizers::TextSource& text, const tokenizers::Tokenizer& tokenizer,
                      const std::filesystem::path& path, int threads = 0);

// The tokens of `file` from `begin` on as a file of their own, of whose text nothing is unknown to the tokenizer.
// `text_bytes`: of that text; nothing: neither is known.
void write_rest_of_token_file(const TokenFile& file, std::int64_t begin, std::optional<std::int64_t> text_bytes,
                              const std::filesystem::path& path);

// Joins token files of one tokenizer to one. Throws UserError naming both when two tokenizers differ.
void join_token_files(const std::vector<std::filesystem::path>& files, const std::filesystem::path& path);

// A part of what a run reads.
struct PreparedPart {
  std::filesystem::path file;
  std::string name;         // what messages call it: the user's files, not the one kept
  std::int64_t tokens = 0;  // the file's first ones; 0: all of them
};

// What a run reads: its tokenizer and both splits as token files, made on first use and kept under `cache_folder`
// by a name that changes with the text and the tokenizer's options.
struct PreparedData {
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer;
  std::vector<PreparedPart> train;  // a corpus of the mixture each; without a mixture a single one
  PreparedPart validation;
};

// The tokenizer is that of the file `tokenizer.model`, else that of the token files among data.train and
// data.validation, else it is trained on the training split. Without data.validation, data.validation_fraction of each
// corpus is held out: the last lines of text; of a token file the last tokens, from a line end on where one of them
// stands for it. Several processes may prepare the same data at once: each file appears whole. Throws UserError
// naming both tokenizers when token files differ from each other or from `tokenizer.model`, and when a split mixes text
// and token files.
PreparedData prepare_data(const config::DataOptions& data, const config::TokenizerOptions& tokenizer,
                          const std::filesystem::path& cache_folder);

// The validation split alone, in the tokens of this tokenizer.
PreparedPart prepare_validation(const config::DataOptions& data,
                                const std::shared_ptr<const tokenizers::Tokenizer>& tokenizer,
                                const std::filesystem::path& cache_folder);

}  // namespace headroom::data
