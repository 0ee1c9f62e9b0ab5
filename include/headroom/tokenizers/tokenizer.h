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

// Text read block by block, for example to train a tokenizer. A block is valid UTF-8 (unless the source is of raw
// bytes), ends at a line end or at the end of the text, and has at most a few hundred kilobytes unless one line is
// longer. A line of more than 4 MiB is cut between characters. The same files always give the same blocks. A file
// without a final line end gets one if another file follows, so that no line spans two files.
class TextSource {
 public:
  virtual ~TextSource() = default;
  // Returns false at the end. Throws UserError, naming the file and the byte or line, for bad input: missing, empty,
  // binary, not UTF-8, truncated gzip, malformed JSON line.
  virtual bool next(std::string& block) = 0;
  virtual void rewind() = 0;
  virtual std::int64_t bytes_read() const = 0;  // of the input files; for progress bars
  virtual std::int64_t bytes_total() const = 0;
  // Cache key of the content: changes when the path, size or modification time of any file does.
  virtual std::string fingerprint() const = 0;
};

// Parts of a text that a tokenizer cannot represent.
struct Unknown {
  std::int64_t tokens = 0;
  std::int64_t bytes = 0;  // of the text
};

// A position where a text may be cut without changing its ids: [0, end) and [next, size) encode independently. The
// bytes between `end` and `next` are empty, or a blank that SentencePiece prepends to every text itself. end == 0: no
// such position.
struct Cut {
  std::size_t end = 0, next = 0;
};

// Encoding and decoding are thread-safe.
//
// bytes: one id per byte. With a vocabulary below 256, only byte values in the training text have ids (Enwik8 has 205);
// the remaining ids stand for every other byte and decode to 0xff. Decoded model output may be invalid UTF-8.
//
// words: "<unk>" is 0, "<eos>" is 1, then the words of the training text by descending frequency, ties in byte order.
// Words are separated by ASCII white space; each line end gives "<eos>". Decoding joins words with one blank.
//
// sentencepiece: BPE with byte fallback. A tokenizer trained here encodes line by line, with <0x0A> for the line end.
// With keep_whitespace, decode(encode(text)) == text for any text; without, lines are normalised first as SentencePiece
// does by default (NFKC, runs of blanks collapsed and trimmed). An imported model gives the ids of the `sentencepiece`
// package, which treats line ends as ordinary characters; checkpoints and token files from before that encode it line
// by line.
//
// bpe: byte-level BPE as in GPT-2, trained here or imported: the ids of the `tokenizers` package without the special
// tokens that a template adds. Added tokens are matched in the text; the rest is split into words by the pattern of
// GPT-2, LLaMA 3 or Qwen2, and merges stay inside words. decode(encode(text)) is the text, or its NFC form if the
// tokenizer normalises. Spare ids decode to nothing.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual config::TokenizerKind kind() const = 0;
  virtual std::int64_t vocabulary_size() const = 0;  // ids are 0 .. vocabulary_size-1

  // Appends the ids of `text`. Throws UserError for a byte value that a bytes or bpe vocabulary lacks (if no spare id
  // stands for it), and for invalid UTF-8 with bpe.
  virtual void encode(std::string_view text, std::vector<std::int32_t>& ids) const = 0;
  // The last cut in `text`, which ends at a line end and may be continued.
  virtual Cut separable(std::string_view text) const { return {.end = text.size(), .next = text.size()}; }
  // What encode() of `text` loses: words outside the vocabulary, byte values that share an id, characters for which an
  // imported SentencePiece model has neither pieces nor bytes.
  virtual Unknown unknown(std::string_view /*text*/) const { return {}; }
  // Number of text bytes that `ids`, the encoding of `text`, represent: the size of the text if it is reproduced
  // exactly, else of the normalised text. Unknown words count with their bytes.
  virtual std::int64_t decoded_bytes(std::string_view text, std::span<const std::int32_t> /*ids*/) const {
    return std::ssize(text);
  }
  // Throws UserError for an id outside the vocabulary.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
  // SentencePiece's <s> and </s>, which begin and end sentences in translation and never come from text; -1 if absent.
  virtual std::int32_t begin_id() const { return -1; }
  virtual std::int32_t end_id() const { return -1; }
  // Id of a line end inside a text; -1 if it has no token of its own.
  virtual std::int32_t line_end_id() const;
  // Id of a piece or added token by its name in the tokenizer's files, such as "<s>"; -1 if absent.
  virtual std::int32_t id_of(std::string_view /*token*/) const { return -1; }
  // The tokenizers of the two sides of a translation: this one, except for a pair made by two_tokenizers(). A pair
  // behaves as its target tokenizer in all other functions.
  virtual const Tokenizer& for_sources() const { return *this; }
  virtual const Tokenizer& for_targets() const { return *this; }
  // Size of a separate source vocabulary; 0 if both sides share this one.
  std::int64_t source_vocabulary_size() const { return &for_sources() == this ? 0 : for_sources().vocabulary_size(); }
  // Everything needed to restore it: the SentencePiece model, the word list (one a line, in the order of ids), the byte
  // values in the order of ids (empty: all 256), a tokenizer.json, or a pair of these.
  virtual const std::string& serialised() const = 0;
  // "sentencepiece-8000-1f3a9c02": kind, size and first digits of the SHA-256 of serialised(). Equal names give equal
  // ids; token files and checkpoints store the name.
  std::string name() const;

  std::vector<std::int32_t> encode(std::string_view text) const {
    std::vector<std::int32_t> ids;
    encode(text, ids);
    return ids;
  }
};

// Trains on `text`, which is rewound and read once, never held in memory as a whole: SentencePiece sees a bounded
// sample of lines, spread evenly over the text; words and bpe count every word. Deterministic. Throws UserError naming
// tokenizer.vocabulary_size if the text is empty or cannot provide that many tokens; bytes need at most 256.
std::unique_ptr<Tokenizer> train_tokenizer(const config::TokenizerOptions& options, TextSource& text);
// The ids to start a text from when there is no context: a line end, as in training; with a tokenizer that drops line
// ends, id 0.
std::vector<std::int32_t> beginning_of_text(const Tokenizer& tokenizer);
// The text that `id` appends after the tokens `before`; it may end inside a character. Unlike decode() of the id alone,
// it includes the blank in front.
std::string text_after(const Tokenizer& tokenizer, std::span<const std::int32_t> before, std::int32_t id);
// Joins the tokenizers of both sides of a translation into one, which is stored, named and restored as one. Throws
// UserError if a side is such a pair itself.
std::shared_ptr<const Tokenizer> two_tokenizers(std::shared_ptr<const Tokenizer> sources,
                                                std::shared_ptr<const Tokenizer> targets);
// Throws UserError, prefixed with `what`, unless the tokenizer's separate source vocabulary has the size that the model
// options ask for (0: a shared vocabulary).
void require_source_vocabulary(const Tokenizer& tokenizer, std::int64_t source_vocabulary_size, std::string_view what);
// Restores Tokenizer::serialised(), which is untrusted: throws UserError naming `origin`.
std::unique_ptr<Tokenizer> restore_tokenizer(config::TokenizerKind kind, std::string serialised,
                                             std::string_view origin);
// Loads a tokenizer from a file: one of save_tokenizer(), a SentencePiece .model, a word list (.txt, one word a line),
// a tokenizer.json, or a vocab.json (encoder.json) next to merges.txt (vocab.bpe); or from a folder that holds a
// tokenizer.json, such a pair or a tokenizer.model. JSON and merges may be gzip. A bpe tokenizer with fewer than
// `least_size` ids, the vocabulary size of the model, is filled up with spare ids. Throws UserError.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path, std::int64_t least_size = 0);
// The same, but a SentencePiece model encodes line by line, as older versions did; for runs started with them.
std::unique_ptr<Tokenizer> load_tokenizer_by_line(const std::filesystem::path& path);
bool encodes_by_line(const Tokenizer& tokenizer);  // false for pairs and everything but SentencePiece
void save_tokenizer(const Tokenizer& tokenizer, const std::filesystem::path& path);
// Stores the tokenizer inside another safetensors file, for read_tokenizer(). It must outlive the writer.
void add_tokenizer(SafetensorsWriter& writer, const Tokenizer& tokenizer);

// Special tokens that a tokenizer's files declare beyond its vocabulary; names are those of id_of().
struct SpecialNames {
  std::vector<std::string> names;
  std::string in_front;  // prepended to every text; empty: none
};
// A tokenizer.json with the same ids: for bpe (without spare ids), bytes, and SentencePiece models that are BPE. Empty
// for everything else and for pairs. With a normalising SentencePiece model, text differs where a letter has several
// combining marks.
std::string to_tokenizer_json(const Tokenizer& tokenizer, const SpecialNames& special = {});
// The contents of a SentencePiece .model file.
std::string to_sentencepiece_model(const Tokenizer& tokenizer);
// Reads the tokenizer inside a safetensors file (of save_tokenizer(), a token file or a checkpoint): metadata
// tokenizer_kind and tokenizer_name, tensor "tokenizer" (U8). Throws UserError naming the file, also if the stored name
// does not match.
std::unique_ptr<Tokenizer> read_tokenizer(const SafetensorsFile& file);

}  // namespace headroom::tokenizers
