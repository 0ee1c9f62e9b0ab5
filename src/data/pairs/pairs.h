// Sentence pairs: read from text files, selected for training and validation, and stored as tokens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "data/text/text_file.h"
#include "headroom/core/safetensors.h"
#include "headroom/tokenizers/tokenizer.h"

namespace headroom::data {

struct TextPair {
  std::string source, target;  // UTF-8, not empty, trimmed
};

// Text files with one pair a line, possibly gzip or zstd. With `target`, line n of its i-th file is the translation of
// line n of the i-th file of `source`; without, each line of `source` holds both, separated by tabs, in the columns
// options.pair_columns.
struct PairFiles {
  std::vector<std::string> source, target;  // patterns, as for open_text()
};

// Reads all pairs in order. A bad row (invalid UTF-8, a NUL byte, an empty side, too few columns) is a UserError naming
// file and line or, with options.skip_bad_rows, skipped and counted. Parallel files of different lengths are always a
// UserError.
class PairReader {
 public:
  PairReader(const PairFiles& files, const config::DataOptions& options);

  bool next(TextPair& pair);  // false at the end; throws UserError if every row was bad
  void rewind();
  std::int64_t rows() const { return rows_; }        // read so far, bad ones included
  std::int64_t skipped() const { return skipped_; }  // bad rows so far
  const std::string& first_complaint() const { return complaint_; }
  std::int64_t bytes_read() const;
  std::int64_t bytes_total() const { return total_; }
  std::string fingerprint() const;  // changes with the path, size or time of a file, or the options

 private:
  void open();
  bool read_lines();
  std::string parse(TextPair& pair) const;
  std::int64_t consumed() const;

  std::vector<std::filesystem::path> sources_, targets_;  // targets_: empty, or one per source
  std::vector<std::int64_t> columns_;
  bool skip_;
  std::size_t index_ = 0;  // of the current file
  std::optional<LineReader> source_, target_;
  std::string line_, target_line_;
  std::int64_t rows_ = 0, skipped_ = 0;
  std::int64_t done_ = 0, total_ = 0;  // bytes of finished files, of all files
  std::string complaint_;              // about the first bad row
};

// All pairs; logs a warning with the number of skipped rows.
std::vector<TextPair> read_pairs(const PairFiles& files, const config::DataOptions& options);

// Whether a pair with this source is held out for validation.
bool is_held_out(const std::string& source, double share);

// The pairs of data.train that a run trains on: without held-out pairs, pairs with the target of a held-out pair, and
// pairs that data.length_ratio or data.most_words exclude.
class TrainingPairs {
 public:
  // Throws UserError if there is neither a validation file nor a share to hold out.
  explicit TrainingPairs(const config::DataOptions& options);
  bool next(TextPair& pair);
  void rewind();
  const PairReader& reader() const { return reader_; }
  std::string fingerprint() const;
  std::string remarks() const;  // after a whole pass: what was excluded and why, or empty

 private:
  bool is_clean(const TextPair& pair) const;

  PairReader reader_;
  double share_;                                    // held out; 0: none
  std::unordered_set<std::uint64_t> held_targets_;  // hashes
  double length_ratio_;                             // 0: no limit
  std::int64_t most_words_;                         // 0: no limit
  std::int64_t held_ = 0, related_ = 0, unclean_ = 0;
};

// The validation pairs of a run: those of data.validation, else the part of data.train that data.validation_share holds
// out, in a fixed random order. All pairs of one source are held out together. Throws UserError if there are none.
std::vector<TextPair> validation_pairs(const config::DataOptions& options);

// Sentence pairs as tokens, mapped from a safetensors file. Tensors: "tokens" [n] U16 or I32, alternating source and
// target; "ends" [2 pairs] I64, the end of each of these; "tokenizer". Metadata: format "headroom.pairs.1",
// tokenizer_name, tokenizer_kind, vocabulary_size (of the targets), source_vocabulary_size (if missing, the same), hash
// (of the tokens), remarks (what was excluded and why).
class PairFile {
 public:
  // Throws UserError naming the file if it has another format, or ends that do not ascend or exceed the tokens.
  explicit PairFile(const std::filesystem::path& path);

  std::int64_t size() const { return size_; }  // pairs
  std::int64_t source_length(std::int64_t pair) const { return length(2 * pair); }
  std::int64_t target_length(std::int64_t pair) const { return length(2 * pair + 1); }
  // Throw UserError for an id outside the vocabulary.
  void source(std::int64_t pair, std::vector<std::int32_t>& ids) const { copy(2 * pair, ids); }
  void target(std::int64_t pair, std::vector<std::int32_t>& ids) const { copy(2 * pair + 1, ids); }
  // Reads the whole file. Throws UserError if the hash does not match.
  void verify() const;
  const std::string& tokenizer_name() const { return tokenizer_name_; }
  const std::string& remarks() const { return remarks_; }
  std::string identity() const;  // "sentencepiece-8000-1f3a9c02, 1234 pairs, 9c41..."

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

// Prepares the training pairs as tokens, cached under `cache_folder`. The tokenizer is tokenizer.model, else trained on
// both sides of the training pairs. With a source_vocabulary_size (of the model) it is a pair: one for the targets, and
// one for the sources, which is tokenizer.source_model or has that many tokens; each is trained on its own side. Throws
// UserError.
PreparedPairs prepare_pairs(const config::DataOptions& data, const config::TokenizerOptions& tokenizer,
                            const std::filesystem::path& cache_folder, std::int64_t source_vocabulary_size = 0);

}  // namespace headroom::data
