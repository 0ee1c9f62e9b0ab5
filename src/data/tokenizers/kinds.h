// The functions that train, restore and load each of the four kinds of tokenizers.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "foundation/core/machine/log.h"
#include "headroom/core/json.h"
#include "headroom/tokenizers/tokenizer.h"

namespace headroom::tokenizers {

constexpr std::string_view kBlankSymbol = "\xe2\x96\x81";  // U+2581, SentencePiece's symbol for a space

std::unique_ptr<Tokenizer> train_bytes(const config::TokenizerOptions& options, TextSource& text);
std::unique_ptr<Tokenizer> restore_bytes(std::string serialised, std::string_view origin);

std::unique_ptr<Tokenizer> train_words(const config::TokenizerOptions& options, TextSource& text);
std::unique_ptr<Tokenizer> restore_words(std::string serialised, std::string_view origin);

std::unique_ptr<Tokenizer> train_sentencepiece(const config::TokenizerOptions& options, TextSource& text);
std::unique_ptr<Tokenizer> restore_sentencepiece(std::string serialised, std::string_view origin);

std::unique_ptr<Tokenizer> train_bpe(const config::TokenizerOptions& options, TextSource& text);
// Restores a tokenizer from a tokenizer.json, or from a vocabulary and merges. If it has fewer than `min_size` ids,
// adds spare ids, which have no text.
std::unique_ptr<Tokenizer> restore_bpe(std::string_view serialised, std::string_view origin, std::int64_t min_size = 0);
struct PairTexts;
struct PairSettings;
std::unique_ptr<Tokenizer> restore_bpe_pair(const PairTexts& texts, const PairSettings& settings,
                                            std::int64_t min_size = 0);
// Returns whether a tokenizer.json has BPE with byte fallback, as LLaMA's does, instead of byte-level BPE.
bool has_byte_fallback(const SortedJson& document);
// Restores a SentencePiece tokenizer that gives the same ids as a tokenizer.json of this kind. Throws UserError naming
// the setting that has no equivalent.
std::unique_ptr<Tokenizer> restore_byte_fallback(const SortedJson& document, std::string_view origin,
                                                 std::int64_t min_size);
// Restores such a tokenizer from Tokenizer::serialised().
std::unique_ptr<Tokenizer> restore_json_tokenizer(std::string serialised, std::string_view origin);
// Loads the tokenizer.json in the folder of a tokenizer.model. Returns null if there is none, or, with a warning, if it
// has an unsupported setting.
std::unique_ptr<Tokenizer> load_json_beside(const std::filesystem::path& model, std::int64_t min_size);
// Returns whether a file name ends in .json or .json.gz.
bool names_bpe(const std::filesystem::path& path);
// Loads a byte-level BPE tokenizer. From a folder: tokenizer.json, else vocab.json and merges.txt, else encoder.json
// and vocab.bpe. From a file: a tokenizer.json, or the vocabulary of such a pair with its merges in the same folder.
// Each file may be gzip (name + ".gz").
std::unique_ptr<Tokenizer> load_bpe(const std::filesystem::path& path, std::int64_t min_size);

// Returns whether this is a serialised pair of tokenizers (two_tokenizers()).
bool holds_two(std::string_view serialised);
// Restores such a pair. `kind` is the kind of the target tokenizer. Throws UserError naming `origin`.
std::unique_ptr<Tokenizer> restore_two(config::TokenizerKind kind, std::string_view serialised,
                                       std::string_view origin);

// Throws UserError naming `origin` for an unknown name.
config::TokenizerKind kind_named(std::string_view name, std::string_view origin);

// Throws UserError unless 0 <= id < vocabulary_size.
void check_id(std::int32_t id, std::int64_t vocabulary_size);

// Rewinds a text, reads it block by block, and shows progress.
class BlockReader {
 public:
  BlockReader(TextSource& text, std::string what) : text_(text), progress_(std::move(what), text.bytes_total(), "B") {
    text_.rewind();
  }
  bool next(std::string& block);  // throws InterruptedError on Ctrl-C

 private:
  TextSource& text_;
  Progress progress_;
};

}  // namespace headroom::tokenizers
