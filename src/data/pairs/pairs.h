// Sentences with their translations: read from files line by line, and kept as tokens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/text/text.h"
#include "headroom/core/safetensors.h"
#include "headroom/tokenizers/tokenizer.h"

namespace headroom::data {

struct TextPair {
  std::string source, target;  // UTF-8, neither empty nor with blanks at its ends
};

// Files that hold sentence pairs, one a line (gzip or not). With `target`, line n of its i-th file translates line n of
// the i-th file of `source`; without, each line of `source` holds both, in the columns that options.pair_columns name,
// separated by tabs.
struct PairFiles {
  std::vector<std::string> source, target;  // patterns, as of open_text()
};

// Pairs from the first to the last. A bad row (not UTF-8, a NUL byte, an empty side, too few columns) is a UserError
// naming file and line or, with options.skip_bad_rows, left out and counted. Parallel files of different lengths are
// always a UserError: the lines that belong together are unknown.
class PairReader {
 public:
  PairReader(const PairFiles& files, const config::DataOptions& options);
  ~PairReader();
  PairReader(PairReader&&) noexcept;

  bool next(TextPair& pair);  // false at the end; throws UserError when not one row of all was good
  void rewind();
  std::int64_t rows() const;     // read so far, bad ones included
  std::int64_t skipped() const;  // of these
  const std::string& first_complaint() const;
  std::int64_t bytes_read() const;
  std::int64_t bytes_total() const;
  std::string fingerprint() const;  // changes when a file's path, size or time, or what is read of it, does

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// All pairs, with a warning that says how many rows were left out.
std::vector<TextPair> read_pairs(const PairFiles& files, const config::DataOptions& options);

// Validation pairs of a run: those of data.validation; else the share of data.train that data.validation_fraction holds
// out, in a random order that is always the same. All pairs of one source are held out together; pairs whose target is
// that of a held-out pair are no training pairs either, so that nothing validated on was trained on. Throws UserError
// when there are none.
std::vector<TextPair> validation_pairs(const config::DataOptions& options);

// Sentence pairs as tokens, mapped from a safetensors file. Tensors: "tokens" [n] U16 or I32, source and target of each
// pair in turn; "ends" [2 pairs] I64, where each of these ends; "tokenizer". Metadata: format "headroom.pairs.1",
// tokenizer_name, tokenizer_kind, vocabulary_size (of the targets), source_vocabulary_size (without it: the same), hash
// (of the tokens), remarks (what was left out and why).
class PairFile {
 public:
  // Throws UserError naming the file: not of this format, ends that do not ascend or leave the tokens.
  explicit PairFile(const std::filesystem::path& path);

  std::int64_t size() const { return size_; }  // pairs
  std::int64_t source_length(std::int64_t pair) const { return length(2 * pair); }
  std::int64_t target_length(std::int64_t pair) const { return length(2 * pair + 1); }
  // Throw UserError for an id outside the vocabulary.
  void source(std::int64_t pair, std::vector<std::int32_t>& ids) const { copy(2 * pair, ids); }
  void target(std::int64_t pair, std::vector<std::int32_t>& ids) const { copy(2 * pair + 1, ids); }
  // Reads all of it. Throws UserError where the tokens are not those that the file's hash was made from.
  void verify() const;
  const std::string& tokenizer_name() const { return tokenizer_name_; }
  const std::string& remarks() const { return remarks_; }
  // "sentencepiece-8000-1f3a9c02, 1234 pairs, 9c41...".
  std::string identity() const;

 private:
  std::int64_t end(std::int64_t side) const;
  std::int64_t length(std::int64_t side) const { return end(side) - (side == 0 ? 0 : end(side - 1)); }
  void copy(std::int64_t side, std::vector<std::int32_t>& ids) const;

  SafetensorsFile file_;
  const StoredTensor *tokens_, *ends_;
  std::int64_t size_ = 0, vocabulary_size_ = 0, source_vocabulary_size_ = 0;
  std::string tokenizer_name_, hash_, remarks_;
};

struct PreparedPairs {
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer;
  std::filesystem::path train;  // a PairFile
};

// The training pairs as tokens, made on first use and kept under `cache_folder`; the tokenizer is tokenizer.model, else
// trained on both sides of the training pairs. With a source_vocabulary_size (of the model) it is two in one: of the
// targets, and of the sources, tokenizer.source_model or one of so many tokens, each trained on its own side. Pairs
// that data.max_length_ratio or data.max_words exclude are no training pairs, for tokenizers neither. Throws UserError.
PreparedPairs prepare_pairs(const config::DataOptions& data, const config::TokenizerOptions& tokenizer,
                            const std::filesystem::path& cache_folder, std::int64_t source_vocabulary_size = 0);

}  // namespace headroom::data
