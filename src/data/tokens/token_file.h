// Token files: a sequence of token ids on disk, mapped into memory, with the tokenizer that made them.
#pragma once

#include <fmt/format.h>
#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/text/text.h"
#include "headroom/core/safetensors.h"
#include "headroom/tokenizers/tokenizer.h"

namespace headroom::data {

// A safetensors file that suffices for training. Tensors: "tokens" [n], U16 if the vocabulary has at most 65536 ids,
// else I32; "tokenizer" [bytes] U8, Tokenizer::serialised(); "documents" I64, the first token of each document, absent
// if the text is a single document. Metadata: format "headroom.tokens.1", tokenizer_name, tokenizer_kind,
// vocabulary_size, text_bytes, decoded_bytes, unknown_tokens, unknown_bytes, checksum (CRC-32 of the tokens' bytes).
class TokenFile {
 public:
  // Maps the file and checks format, dtype and metadata. The file must hold at least one token. Ids are checked against
  // `vocabulary_size` when they are read. Throws UserError naming the file. `name` replaces the path in messages if it
  // is not empty. If `parts` are given, only these tokens are used, in this order.
  explicit TokenFile(const std::filesystem::path& path, std::string name = {}, std::vector<Range> parts = {});
  // Returns the same documents in an order drawn with `seed`. The last one stays in its place, because it may lack the
  // separator that ends the others.
  TokenFile shuffled(std::uint64_t seed) const;

  std::int64_t size() const { return size_; }              // number of tokens
  std::int64_t text_bytes() const { return text_bytes_; }  // UTF-8 bytes of the whole file's text
  // Returns what the tokenizer could not represent; nullopt if unknown: for parts of a file whose text cannot be
  // derived from the tokens.
  const std::optional<tokenizers::Unknown>& unknown() const { return unknown_; }
  // Returns Tokenizer::decoded_bytes() of the whole file; 0 if unknown() is nullopt.
  std::int64_t decoded_bytes() const { return decoded_bytes_; }
  std::int64_t vocabulary_size() const { return vocabulary_size_; }
  const std::string& tokenizer_name() const { return tokenizer_name_; }
  const std::filesystem::path& path() const { return file_->path(); }
  const std::string& name() const { return name_; }
  const std::vector<Range>& documents() const { return documents_; }  // ascending; empty: a single one

  // Copies tokens [begin, begin+count) to `out`. Throws UserError for an id outside the vocabulary, and Error for a
  // range outside the file.
  void copy(std::int64_t begin, std::int64_t count, std::int32_t* out) const;
  // Reads the whole file. Throws UserError if the checksum does not match.
  void verify() const;
  // Restores the tokenizer stored in the file. Throws UserError if it does not match the metadata.
  std::unique_ptr<tokenizers::Tokenizer> tokenizer() const;

 private:
  void set_parts(std::vector<Range> parts);
  std::size_t part_at(std::int64_t token) const;  // index of the part that holds it; parts_ must not be empty
  void copy_stored(std::int64_t begin, std::int64_t count, std::int32_t* out) const;

  std::shared_ptr<const SafetensorsFile> file_;
  const StoredTensor* tokens_;
  std::vector<Range> documents_, parts_;  // parts_: of the stored tokens; empty: all
  std::vector<std::int64_t> ends_;        // of each part, in the tokens used
  std::int64_t size_ = 0, text_bytes_ = 0, decoded_bytes_ = 0, vocabulary_size_ = 0;
  std::optional<tokenizers::Unknown> unknown_;
  std::string tokenizer_name_, name_;
};

// Encodes the whole text to a token file on `threads` threads (0: all physical cores), in bounded memory, and shows
// progress. The result does not depend on the number of threads. Throws UserError if the text gives no tokens, and
// InterruptedError on Ctrl-C; neither leaves a file behind.
void write_token_file(tokenizers::TextSource& text, const tokenizers::Tokenizer& tokenizer,
                      const std::filesystem::path& path, int threads = 0);
// Writes all tokens that `file` uses as a token file. The tokenizer must represent all their text. `text_bytes` is the
// size of their text, or nullopt if unknown.
void write_part_of_token_file(const TokenFile& file, std::optional<std::int64_t> text_bytes,
                              const std::filesystem::path& path);
// Returns the tokens of the validation split: about `share` of the file's tokens (0 < share < 1), at least one. With
// order `shuffled`, they are documents drawn from the whole file; with order `given`, and for a single document, its
// end, from a line end on if the tokenizer has a token for it. Throws UserError if the file holds a single token.
std::vector<Range> held_out_tokens(const TokenFile& whole, double share, config::Order order);
// Writes this validation split as a token file. The size of its text is determined by decoding, and recorded as unknown
// if decoding does not reproduce the size of the whole text.
void write_held_out(const TokenFile& whole, const std::vector<Range>& held, const std::filesystem::path& path);
// Concatenates token files with the same tokenizer. Throws UserError naming two files whose tokenizers differ.
void join_token_files(const std::vector<std::filesystem::path>& files, const std::filesystem::path& path);

struct PreparedPart {
  std::filesystem::path file;
  std::string name;               // shown in messages: the user's files instead of the cached one
  std::vector<Range> parts = {};  // tokens used; empty: all
};

// The data of a run: its tokenizer and both splits as token files. The files are cached in `cache_folder` under names
// that depend on the text and the tokenizer options.
struct PreparedData {
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer;
  std::vector<PreparedPart> train;  // one per corpus of a mixture; otherwise a single one
  PreparedPart validation;
};

// Prepares the data of a run. The tokenizer is the file `tokenizer.model`, else the one stored in the token files of
// data.train and data.validation, else it is trained on the training split. If data.validation is not set,
// data.validation_fraction of each corpus is held out (split_of(), held_out_tokens()). Several processes may prepare
// the same data at once, since files appear atomically. Throws UserError naming both tokenizers if token files differ
// from each other or from `tokenizer.model`, and if a split mixes text and token files.
PreparedData prepare_data(const config::DataOptions& data, const config::TokenizerOptions& tokenizer,
                          const std::filesystem::path& cache_folder);

// Prepares only the validation split, with the given tokenizer.
PreparedPart prepare_validation(const config::DataOptions& data,
                                const std::shared_ptr<const tokenizers::Tokenizer>& tokenizer,
                                const std::filesystem::path& cache_folder);

// The layout of a token file, for its reader and its writer.

inline constexpr const char *kTokenFormat = "headroom.tokens.1", *kDocuments = "documents";

class TokenChecksum {
 public:
  static constexpr const char* kKey = "checksum";  // metadata key

  void add(std::span<const std::byte> bytes) {
    sum_ = crc32_z(sum_, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
  }
  std::string text() const { return fmt::format("{:08x}", sum_); }

 private:
  uLong sum_ = crc32_z(0, nullptr, 0);
};

}  // namespace headroom::data
