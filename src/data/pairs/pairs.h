// Sentence pairs: read from text files, selected for training and validation, stored as tokens, and cut into batches.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "data/text/text_file.h"
#include "data/tokens/batches.h"
#include "headroom/core/safetensors.h"
#include "headroom/tokenizers/tokenizer.h"

namespace headroom::data {

struct TextPair {
  std::string source, target;  // UTF-8, not empty, trimmed
};

// Text files with one pair per line, which may be gzip or zstd. With `target`, line n of the i-th target file is the
// translation of line n of the i-th source file. Without `target`, each line of `source` has tab-separated columns, and
// options.pair_columns selects the source and the target.
struct PairFiles {
  std::vector<std::string> source, target;  // patterns, as for open_text()
};

// Reads all pairs in order. A bad row has invalid UTF-8, a NUL byte, an empty side or too few columns. It is skipped
// and counted with options.skip_bad_rows; otherwise it throws UserError naming file and line. Parallel files of
// different lengths always throw UserError.
class PairReader {
 public:
  PairReader(const PairFiles& files, const config::DataOptions& options);

  bool next(TextPair& pair);  // false at the end; throws UserError if every row was bad
  void rewind();
  std::int64_t rows() const { return rows_; }        // rows read so far, including bad ones
  std::int64_t skipped() const { return skipped_; }  // bad rows so far
  const std::string& first_complaint() const { return complaint_; }
  std::int64_t bytes_read() const;
  std::int64_t bytes_total() const { return total_; }
  std::string fingerprint() const;  // changes with the options and the content of a file

 private:
  void open();
  bool read_lines();
  std::string parse(TextPair& pair) const;
  std::int64_t consumed() const;

  std::vector<std::filesystem::path> sources_, targets_;  // targets_: empty, or one per source file
  std::vector<std::int64_t> columns_;
  bool skip_;
  std::size_t index_ = 0;  // index of the current file
  std::optional<LineReader> source_, target_;
  std::string line_, target_line_;
  std::int64_t rows_ = 0, skipped_ = 0;
  std::int64_t done_ = 0, total_ = 0;  // bytes of finished files, of all files
  std::string complaint_;              // error message of the first bad row
};

// Reads all pairs. Logs the number of skipped rows as a warning.
std::vector<TextPair> read_pairs(const PairFiles& files, const config::DataOptions& options);

// Returns whether pairs with this source sentence are held out for validation. `share` is the fraction held out.
bool is_held_out(const std::string& source, double share);

// Reads the pairs of data.train that a run trains on. Skips held-out pairs, pairs with the same target as a held-out
// pair, and pairs that data.max_length_ratio or data.max_words exclude.
class TrainingPairs {
 public:
  // Throws UserError if there is neither a validation file nor a fraction to hold out.
  explicit TrainingPairs(const config::DataOptions& options);
  bool next(TextPair& pair);
  void rewind();
  const PairReader& reader() const { return reader_; }
  std::string fingerprint() const;
  std::string remarks() const;  // call after a whole pass: what was excluded and why; may be empty

 private:
  bool is_clean(const TextPair& pair) const;

  PairReader reader_;
  double share_;                                    // fraction held out; 0: none
  std::unordered_set<std::uint64_t> held_targets_;  // hashes of the targets of held-out pairs
  double length_ratio_;                             // 0: no limit
  std::int64_t most_words_;                         // 0: no limit
  std::int64_t held_ = 0, related_ = 0, unclean_ = 0;
};

// Returns the validation pairs of a run: data.validation if set, else the fraction data.validation_fraction of
// data.train, in a fixed random order. All pairs with the same source are held out together. Throws UserError if there
// are none.
std::vector<TextPair> validation_pairs(const config::DataOptions& options);

// Sentence pairs as tokens, mapped from a safetensors file. Tensors: "tokens" [n] U16 or I32, alternating source and
// target; "ends" [2 pairs] I64, the end of each source and target in "tokens"; "tokenizer". Metadata: format
// "headroom.pairs.1", tokenizer_name, tokenizer_kind, vocabulary_size (of the targets), source_vocabulary_size
// (default: vocabulary_size), hash (of the tokens), remarks (what was excluded and why).
class PairFile {
 public:
  // Throws UserError naming the file if the format differs, or if the ends do not ascend or exceed the tokens.
  explicit PairFile(const std::filesystem::path& path);

  std::int64_t size() const { return size_; }  // number of pairs
  std::int64_t source_length(std::int64_t pair) const { return length(2 * pair); }
  std::int64_t target_length(std::int64_t pair) const { return length(2 * pair + 1); }
  // Replace `ids` with the tokens of one side. Throw UserError for an id outside the vocabulary.
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

// Encodes the training pairs to tokens, cached in `cache_folder`. The tokenizer is tokenizer.model; if that is not set,
// it is trained on both sides of the training pairs. If the model's source_vocabulary_size is set, targets and sources
// have separate tokenizers, each trained on its own side. The source tokenizer is then tokenizer.source_model or has
// source_vocabulary_size tokens. Throws UserError.
PreparedPairs prepare_pairs(const config::DataOptions& data, const config::TokenizerOptions& tokenizer,
                            const std::filesystem::path& cache_folder, std::int64_t source_vocabulary_size = 0);

// Batches of sentence pairs of similar lengths, in a deterministic order that continues exactly from a saved position.

struct BatchLimits {
  std::int64_t rows = 1;
  std::int64_t tokens = 0;    // maximum of rows x length of the longest row; 0: no limit
  std::int64_t multiple = 1;  // the number of rows is a multiple of this
};

// Returns the end of the batch that starts at `begin`, for `count` sentences in ascending order of length. length(i)
// includes the end token. A batch has at least `multiple` rows, regardless of the other limits.
template <class Length>
std::int64_t batch_end(std::int64_t begin, std::int64_t count, const BatchLimits& limits, const Length& length) {
  std::int64_t end = begin + limits.multiple;
  for (std::int64_t more = end + limits.multiple;
       more <= count && more - begin <= limits.rows &&
       (limits.tokens == 0 || (more - begin) * length(more - 1) <= limits.tokens);
       more += limits.multiple) {
    end = more;
  }
  return end;
}

struct PairBatchOptions {
  std::int64_t rows = 1;      // maximum per batch
  std::int64_t multiple = 1;  // the number of rows is a multiple of this (the number of micro-batches)
  std::int64_t tokens = 0;    // maximum of rows x the longer side of the longest pair; 0: no limit
  std::int64_t longest = 1;   // pairs with a longer side (in tokens, with the end token) are skipped
  std::uint64_t seed = 0;
};

// Batches of pairs of similar length. Pairs are sorted by the length of their longer side, including the end token, and
// cut into batches as large as the limits allow. Every epoch shuffles the pairs of equal length, and the batches. Each
// epoch leaves out up to multiple-1 of the longest pairs, different ones each time. The order is computed on demand,
// not stored.
class PairBatches : public EpochStream {
 public:
  // Throws UserError, naming the file's identity, if the file has too few pairs for one batch.
  PairBatches(const PairFile& file, const PairBatchOptions& options);
  std::vector<std::int64_t> next();                    // indices of pairs in the file
  std::int64_t too_long() const { return too_long_; }  // number of pairs skipped

 private:
  std::vector<std::int64_t> order_;   // pairs sorted by length, then by index
  std::vector<std::int64_t> starts_;  // where each length starts in order_
  std::vector<std::int64_t> cuts_;    // start of each batch in order_, then the end of the last one
  std::int64_t too_long_ = 0;
  std::uint64_t seed_;
};

}  // namespace headroom::data
