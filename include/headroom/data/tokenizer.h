// Text to token ids and back: bytes, SentencePiece or words.
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

namespace headroom::data {

class TextSource;

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual config::TokenizerKind kind() const = 0;
  virtual std::int64_t vocabulary_size() const = 0;  // ids are 0 .. vocabulary_size-1
  // Appends the ids of a piece of text. Encoding block by block equals encoding line by line: blocks end at line ends.
  virtual void encode(std::string_view text, std::vector<std::int32_t>& ids) const = 0;
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
  // Everything needed to build it again: the SentencePiece model, the word list, or nothing.
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

// Trains on `text` (read once or more, never held whole: SentencePiece sees a bounded, evenly spread sample of
// its lines). Throws MisuseError when the text is empty or cannot give so many pieces.
std::unique_ptr<Tokenizer> train_tokenizer(const config::TokenizerOptions& options, TextSource& text);

// From Tokenizer::serialised(), which may come from a hostile file: throws MisuseError naming `origin`.
std::unique_ptr<Tokenizer> restore_tokenizer(config::TokenizerKind kind, std::string serialised,
                                             std::string_view origin);

// A file holding a tokenizer (as `headroom tokenizer train` writes it, or a SentencePiece .model). Throws MisuseError.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path);
void save_tokenizer(const Tokenizer& tokenizer, const std::filesystem::path& path);

}  // namespace headroom::data
