// Converts text to token ids and back: bytes, words, SentencePiece or byte-level BPE.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/config/run_options.h"
#include "headroom/core/safetensors.h"

namespace headroom::tokenizers {

// A text that is read block by block, for example to train a tokenizer. A block is valid UTF-8 unless the source yields
// raw bytes. It ends at a line end or at the end of the text, and has at most a few hundred kilobytes unless a single
// line is longer. A line of more than 4 MiB is cut between characters. The same files always give the same blocks. If a
// file lacks a final line end and another file follows, a line end is added, so that no line spans two files.
class TextSource {
 public:
  virtual ~TextSource() = default;
  // Reads the next block; returns false at the end. Throws UserError, naming the file and the byte or line, if a file
  // is missing, empty, binary, not UTF-8, a truncated gzip file, or has a malformed JSON line.
  virtual bool next(std::string& block) = 0;
  // Returns where documents begin in the last block, in ascending order; empty if the text is a single document.
  virtual std::span<const std::size_t> document_starts() const { return {}; }
  virtual void rewind() = 0;
  virtual std::int64_t bytes_read() const = 0;  // bytes of the input files as stored; for progress bars
  virtual std::int64_t bytes_total() const = 0;
  // Returns a cache key of the text: a hash of the contents of its files.
  virtual std::string fingerprint() const = 0;
};

// The parts of a text that a tokenizer cannot represent.
struct Unknown {
  std::int64_t tokens = 0;
  std::int64_t bytes = 0;  // bytes of the text
};

// A position where a text can be cut without changing its ids: [0, end) and [next, size) encode independently. The
// bytes between `end` and `next` are either empty or a space, which SentencePiece itself prepends to every text.
// end == 0: there is no such position.
struct Cut {
  std::size_t end = 0, next = 0;
};

// Converts text to token ids and back. encode() and decode() are thread-safe.
//
// bytes: one id per byte. With a vocabulary below 256, only byte values in the training text have ids (Enwik8 has 205);
// the remaining ids stand for all other bytes and decode to 0xff. Decoded model output may be invalid UTF-8.
//
// words: "<unk>" is 0, "<eos>" is 1, then the words of the training text by descending frequency, ties in byte order.
// ASCII white space separates words; each line end gives "<eos>". Decoding joins words with one space.
//
// sentencepiece: BPE with byte fallback. A tokenizer trained by Headroom encodes line by line, with <0x0A> for the line
// end. With keep_whitespace, decode(encode(text)) == text for any text. Without it, lines are first normalised as
// SentencePiece does by default (NFKC; runs of spaces collapsed, leading and trailing spaces removed). An imported
// model gives the ids of the `sentencepiece` package, which treats line ends as ordinary characters. A tokenizer.json
// with byte fallback gives the ids and texts of the `tokenizers` package: added tokens are matched in the text, and
// special tokens decode to the empty string.
//
// bpe: byte-level BPE as in GPT-2, trained or imported. It gives the ids of the `tokenizers` package without the
// special tokens that a template adds. Added tokens are matched in the text; the rest is split into words by the
// patterns of its pre-tokenizer, and merges stay inside words. decode(encode(text)) is the text, or its NFC form
// if the tokenizer normalises. Spare ids decode to the empty string.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual config::TokenizerKind kind() const = 0;
  virtual std::int64_t vocabulary_size() const = 0;  // ids are 0 .. vocabulary_size-1

  // Appends the ids of `text`. Throws UserError for a byte value that a bytes or bpe vocabulary lacks (unless a spare
  // id represents it), and, with bpe, for invalid UTF-8.
  virtual void encode(std::string_view text, std::vector<std::int32_t>& ids) const = 0;
  // Returns the last cut in `text`. `text` must end at a line end, and more text may follow it.
  virtual Cut separable(std::string_view text) const { return {.end = text.size(), .next = text.size()}; }
  // Returns the parts of `text` that encode() loses: words outside the vocabulary, byte values that share an id, and
  // characters for which an imported SentencePiece model has neither pieces nor bytes.
  virtual Unknown unknown(std::string_view /*text*/) const { return {}; }
  // Returns the number of text bytes that `ids`, the encoding of `text`, represent: the size of the text if decoding
  // reproduces it exactly, else the size of the normalised text. Unknown words count with all their bytes.
  virtual std::int64_t decoded_bytes(std::string_view text, std::span<const std::int32_t> /*ids*/) const {
    return std::ssize(text);
  }
  // Returns the text of `ids`. Throws UserError for an id outside the vocabulary.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
  // SentencePiece's <s> and </s>, which begin and end sentences in translation and never result from text; -1 if
  // absent.
  virtual std::int32_t begin_id() const { return -1; }
  virtual std::int32_t end_id() const { return -1; }
  // Returns the id of a line end inside a text; -1 if line ends have no separate token.
  virtual std::int32_t line_end_id() const;
  // Returns the id of a piece or added token by its name in the tokenizer's files, such as "<s>"; -1 if absent.
  virtual std::int32_t id_of(std::string_view /*token*/) const { return -1; }
  // The tokenizers of the two sides of a translation. Both are this tokenizer, unless it is a pair made by
  // two_tokenizers(). In all other functions a pair behaves as its target tokenizer.
  virtual const Tokenizer& for_sources() const { return *this; }
  virtual const Tokenizer& for_targets() const { return *this; }
  // Returns the size of a separate source vocabulary; 0 if both sides share this vocabulary.
  std::int64_t source_vocabulary_size() const { return &for_sources() == this ? 0 : for_sources().vocabulary_size(); }
  // Returns everything needed to restore the tokenizer: the SentencePiece model, the word list (one word per line, in
  // order of ids), the byte values in order of ids (empty: all 256), a tokenizer.json, or a pair of these.
  virtual const std::string& serialised() const = 0;
  // Returns "sentencepiece-8000-1f3a9c02": kind, size and first digits of the SHA-256 of serialised(). Tokenizers with
  // equal names give equal ids. Token files and checkpoints store the name.
  std::string name() const;

  std::vector<std::int32_t> encode(std::string_view text) const {
    std::vector<std::int32_t> ids;
    encode(text, ids);
    return ids;
  }
};

// Trains a tokenizer on `text`, which is rewound, read once, and never held in memory as a whole: SentencePiece uses a
// bounded sample of lines, spread evenly over the text; words and bpe count every word. Deterministic. Throws UserError
// naming tokenizer.vocabulary_size if the text is empty or cannot provide that many tokens; bytes need at most 256.
std::unique_ptr<Tokenizer> train_tokenizer(const config::TokenizerOptions& options, TextSource& text);
// Returns the ids that start a text without context: a line end, as in training, or id 0 if the tokenizer drops line
// ends.
std::vector<std::int32_t> beginning_of_text(const Tokenizer& tokenizer);
// Returns the text that `id` appends after the tokens `before`; it may end inside a character. It includes a leading
// space, which decode() of the id alone omits.
std::string text_after(const Tokenizer& tokenizer, std::span<const std::int32_t> before, std::int32_t id);
// Joins the tokenizers of both sides of a translation into a single tokenizer, with one name and one serialised form.
// Throws UserError if a side is such a pair itself.
std::shared_ptr<const Tokenizer> two_tokenizers(std::shared_ptr<const Tokenizer> sources,
                                                std::shared_ptr<const Tokenizer> targets);
// Throws UserError, prefixed with `what`, unless the tokenizer's source_vocabulary_size() equals the model's (0: a
// shared vocabulary).
void require_source_vocabulary(const Tokenizer& tokenizer, std::int64_t source_vocabulary_size, std::string_view what);
// Restores a tokenizer from Tokenizer::serialised(), which is untrusted: throws UserError naming `origin` if it is
// invalid.
std::unique_ptr<Tokenizer> restore_tokenizer(config::TokenizerKind kind, std::string serialised,
                                             std::string_view origin);
// Loads a tokenizer. A file may be written by save_tokenizer(), a SentencePiece .model, a tokenizer.json, or a
// vocab.json (encoder.json) in the same folder as merges.txt (vocab.bpe). A folder must hold a tokenizer.json, such a
// pair, a tokenizer.model, or headroom_torch's tokenizer.headroom, or be a run folder. A vocabulary in JSON below
// `min_size`, the model's vocabulary size, gets spare ids, and added tokens from there on are removed, with a warning.
// JSON and merges may be gzip. Throws UserError.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path, std::int64_t min_size = 0);
// Returns whether a folder has any of these files; false for a run folder.
bool holds_tokenizer(const std::filesystem::path& folder);
void save_tokenizer(const Tokenizer& tokenizer, const std::filesystem::path& path);
// Adds the tokenizer to another safetensors file, for read_tokenizer(). The tokenizer must outlive the writer.
void add_tokenizer(SafetensorsWriter& writer, const Tokenizer& tokenizer);

// Special tokens that a tokenizer's files declare in addition to its vocabulary; `names` are as for id_of().
struct SpecialNames {
  std::vector<std::string> names;
  std::vector<std::int32_t> in_front = {};  // ids prepended to every text
};
// Returns a tokenizer.json with the same ids for bpe (without spare ids), bytes, and SentencePiece models that are BPE;
// an empty string for all other tokenizers and for pairs. For a normalising SentencePiece model, ids can differ where a
// letter has several combining marks.
std::string to_tokenizer_json(const Tokenizer& tokenizer, const SpecialNames& special = {});
// Returns the contents of a SentencePiece .model file.
std::string to_sentencepiece_model(const Tokenizer& tokenizer);
// Reads the tokenizer stored in a safetensors file (from save_tokenizer(), a token file or a checkpoint): the tensor
// "tokenizer" (U8), with metadata tokenizer_kind and tokenizer_name. Throws UserError naming the file, also if the
// stored name does not match the tokenizer.
std::unique_ptr<Tokenizer> read_tokenizer(const SafetensorsFile& file);

}  // namespace headroom::tokenizers
