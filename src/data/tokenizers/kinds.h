// The kinds of tokenizer: how each is trained and restored.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "foundation/core/machine/log.h"
#include "headroom/tokenizers/tokenizer.h"

namespace headroom::tokenizers {

constexpr std::string_view kBlankSymbol = "\xe2\x96\x81";  // U+2581, what SentencePiece writes for a blank

std::unique_ptr<Tokenizer> train_bytes(const config::TokenizerOptions& options, TextSource& text);
std::unique_ptr<Tokenizer> restore_bytes(std::string serialised, std::string_view origin);

std::unique_ptr<Tokenizer> train_words(const config::TokenizerOptions& options, TextSource& text);
std::unique_ptr<Tokenizer> restore_words(std::string serialised, std::string_view origin);
// A vocabulary from elsewhere: a word a line, from the most frequent on, followed by its count or not. "<unk>" and
// "<eos>" come first, wherever they are in it. Throws UserError naming the line.
std::unique_ptr<Tokenizer> read_vocabulary(std::string_view text, std::string_view origin);

std::unique_ptr<Tokenizer> train_sentencepiece(const config::TokenizerOptions& options, TextSource& text);
std::unique_ptr<Tokenizer> restore_sentencepiece(std::string serialised, std::string_view origin);

std::unique_ptr<Tokenizer> train_bpe(const config::TokenizerOptions& options, TextSource& text);
// From a tokenizer.json, or a vocabulary and merges. Ids to spare make it up to `min_size` if need be; they have no
// text.
std::unique_ptr<Tokenizer> restore_bpe(std::string_view serialised, std::string_view origin, std::int64_t min_size = 0);
std::unique_ptr<Tokenizer> restore_bpe_pair(std::string_view vocabulary, std::string_view merges,
                                            std::string_view origin, std::string_view merges_origin,
                                            std::int64_t min_size = 0);

// Throws UserError naming `origin` for a name that is none.
config::TokenizerKind kind_named(std::string_view name, std::string_view origin);

// Throws UserError for an id that is none of `vocabulary_size`.
void check_id(std::int32_t id, std::int64_t vocabulary_size);

// A text from its beginning, block by block, with progress shown.
class BlockReader {
 public:
  BlockReader(TextSource& text, std::string what) : text_(text), progress_(std::move(what), text.bytes_total(), "B") {
    text_.rewind();
  }
  bool next(std::string& block);  // throws Error on Ctrl-C

 private:
  TextSource& text_;
  Progress progress_;
};

}  // namespace headroom::tokenizers
