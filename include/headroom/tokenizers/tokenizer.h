// Text to token ids and back: bytes, SentencePiece, words or byte-level BPE.
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
#include "headroom/tokenizers/text_source.h"

namespace headroom::tokenizers {

// What a text holds that a tokenizer has no spelling for.
struct Unknown {
  std::int64_t tokens = 0;  // its ids
  std::int64_t bytes = 0;   // of the text
};

// Where a text may be cut: what is in front of `end` and what begins at `next` give the ids of the whole one after the
// other. Between the two is a blank that SentencePiece puts in front of every text by itself, or nothing. 0: nowhere.
struct Cut {
  std::size_t end = 0, next = 0;
};

// Encoding and decoding may be called from several threads at once.
//
// bytes: an id a byte; with a vocabulary of less than 256 only the byte values that the training text held (Enwik8 has
// 205), where spare ids take all others and decode to 0xff. Decoding ids of a language model may give text
// that is not UTF-8.
//
// words: "<unk>" is 0, "<eos>" is 1, then the training text's words from the most frequent on, ties in byte order.
// Words are what ASCII blanks separate; every line end gives "<eos>". Decoding sets one blank between words.
//
// sentencepiece: BPE with a piece for every byte, so that there is always a spelling. Lines are encoded one by one
// and a line end is the piece <0x0A>. With keep_whitespace decode(encode(text)) is the text, whatever it is; without,
// a line is normalised first (NFKC, runs of blanks to one, none at its ends), as SentencePiece does by default. A
// model from elsewhere gives the ids of the package `sentencepiece`, to which a line end is a character like any other;
// in checkpoints and token files that were written before this was so, it is encoded line by line.
//
// bpe: byte-level BPE, trained here or from elsewhere, GPT-2's and its kind: the same ids as the `tokenizers` package
// gives without the special tokens that a template adds. Added tokens are looked for in the text; the rest is cut into
// words by the pattern of GPT-2, LLaMA 3 or Qwen2, and the merges stay inside words. decode(encode(text)) is the text,
// or its composed form (NFC) where the tokenizer asks for that. Ids to spare decode to nothing.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual config::TokenizerKind kind() const = 0;
  virtual std::int64_t vocabulary_size() const = 0;  // ids are 0 .. vocabulary_size-1
  // Appends the ids of a piece of text. bytes, bpe: throws UserError for a byte value that the vocabulary lacks,
  // without an id to spare; bpe: for text that is not UTF-8.
  virtual void encode(std::string_view text, std::vector<std::int32_t>& ids) const = 0;
  // The last cut in `text`, which ends at a line end and which more may follow: its end where lines are encoded one by
  // one.
  virtual Cut separable(std::string_view text) const { return {.end = text.size(), .next = text.size()}; }
  // What encode() of the same text loses: words outside the vocabulary, byte values that share an id, characters that
  // a SentencePiece model from elsewhere has neither pieces nor bytes for.
  virtual Unknown unknown(std::string_view /*text*/) const { return {}; }
  // Bytes of the text that `ids`, those of `text`, stand for: its own where it is reproduced exactly, those of the
  // normalised text otherwise. Unknown words count with their bytes.
  virtual std::int64_t decoded_bytes(std::string_view text, std::span<const std::int32_t> /*ids*/) const {
    return std::ssize(text);
  }
  // Throws UserError for an id outside the vocabulary.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
  // What begins and ends a sentence that is translated: SentencePiece's <s> and </s>, which no text gives. -1: there is
  // none.
  virtual std::int32_t begin_id() const { return -1; }
  virtual std::int32_t end_id() const { return -1; }
  // What a line end is inside a text; -1: no token of its own.
  virtual std::int32_t line_end_id() const;
  // Of a piece, or a token that is looked for in the text itself, by its name in the tokenizer's files, such as "<s>";
  // -1: there is none.
  virtual std::int32_t id_of(std::string_view /*token*/) const { return -1; }
  // What sentences to be translated and their translations are encoded with: itself, but of two in one
  // (two_tokenizers()), which is the translations' tokenizer otherwise.
  virtual const Tokenizer& for_sources() const { return *this; }
  virtual const Tokenizer& for_targets() const { return *this; }
  std::int64_t source_vocabulary_size() const {  // of the sources' own; 0: both sides share this one
    return &for_sources() == this ? 0 : for_sources().vocabulary_size();
  }
  // Everything needed to build it again: the SentencePiece model, the word list (one a line, in the order of their
  // ids), the byte values in the order of their ids (none: all 256), a tokenizer.json, or two of these.
  virtual const std::string& serialised() const = 0;

  // "sentencepiece-8000-1f3a9c02": kind, size and the first digits of the SHA-256 of serialised(). Two tokenizers
  // with the same name give the same ids; token files and checkpoints carry it.
  std::string name() const;
  std::vector<std::int32_t> encode(std::string_view text) const {
    std::vector<std::int32_t> ids;
    encode(text, ids);
    return ids;
  }
};

// Trains on `text` (rewound and read once, never held whole: SentencePiece sees a bounded sample of its lines, spread
// evenly over the text and the same every time; words and bpe count every word). The same text and options give the
// same tokenizer. Throws UserError naming tokenizer.vocabulary_size when the text is empty or cannot give so many
// pieces; bytes take at most 256.
std::unique_ptr<Tokenizer> train_tokenizer(const config::TokenizerOptions& options, TextSource& text);

// What a text of its own begins with where nothing is in front of it: a line end, as in training here; of a tokenizer
// that drops line ends any token, since any beginning is as good as another.
std::vector<std::int32_t> beginning_of_text(const Tokenizer& tokenizer);
// What `id` adds to a text after the tokens `before`, which may be part of a character: alone it may lack the blank in
// front of it.
std::string text_after(const Tokenizer& tokenizer, std::span<const std::int32_t> before, std::int32_t id);

// The tokenizer of translations, `targets`, with that of their sources: kept, named and restored as one. Throws
// UserError where a side is such a pair itself.
std::shared_ptr<const Tokenizer> two_tokenizers(std::shared_ptr<const Tokenizer> sources,
                                                std::shared_ptr<const Tokenizer> targets);
// Throws UserError, beginning with `what`, unless the tokenizer has as many ids for sources alone as such a model
// knows: `source_vocabulary_size` of model options, 0 where it shares one vocabulary.
void require_source_vocabulary(const Tokenizer& tokenizer, std::int64_t source_vocabulary_size, std::string_view what);

// From Tokenizer::serialised(), which may come from a hostile file: throws UserError naming `origin`.
std::unique_ptr<Tokenizer> restore_tokenizer(config::TokenizerKind kind, std::string serialised,
                                             std::string_view origin);

// A file holding a tokenizer, as save_tokenizer() writes it, a SentencePiece .model, a vocabulary of words (.txt, a
// word a line), a tokenizer.json, a vocab.json (encoder.json) with merges.txt (vocab.bpe) next to it, or the folder of
// the latter two or of a tokenizer.model, .gz or not. Throws UserError.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path);
// The same with a SentencePiece model line by line, as all were read before: for runs that began so.
std::unique_ptr<Tokenizer> load_tokenizer_by_line(const std::filesystem::path& path);
bool encodes_by_line(const Tokenizer& tokenizer);  // SentencePiece alone, and not as one of two
// The same, for a model that knows `min_size` tokens: a bpe tokenizer of fewer gets ids to spare.
std::unique_ptr<Tokenizer> load_tokenizer_for(const std::filesystem::path& path, std::int64_t min_size);
void save_tokenizer(const Tokenizer& tokenizer, const std::filesystem::path& path);
// Puts it into a file that holds more, for read_tokenizer(). It must outlive the writer.
void add_tokenizer(SafetensorsWriter& writer, const Tokenizer& tokenizer);

// What a tokenizer's files tell other programs beyond its vocabulary; names are those of id_of().
struct SpecialNames {
  std::vector<std::string> names;  // tokens that mark something, and that no text gives
  std::string in_front;            // one of them, put in front of every text; empty: none
};

// A tokenizer.json with the same ids, for other programs: of bpe (without ids to spare), bytes, and SentencePiece where
// its model is BPE; empty for the others, and for two in one. SentencePiece: the program's normalisation differs where
// a letter has several combining marks, if the model normalises at all.
std::string to_tokenizer_json(const Tokenizer& tokenizer, const SpecialNames& special = {});
// SentencePiece's own file.
std::string to_sentencepiece_model(const Tokenizer& tokenizer);

// The tokenizer inside a safetensors file (a tokenizer's, a token file or a checkpoint): metadata tokenizer_kind and
// tokenizer_name, tensor "tokenizer" (U8). Throws UserError naming the file, also when its name does not fit it.
std::unique_ptr<Tokenizer> read_tokenizer(const SafetensorsFile& file);

}  // namespace headroom::tokenizers
