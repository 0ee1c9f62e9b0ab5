// Writes token files from ids or words, and reads them.
#pragma once

#include <cstring>

#include "data/text/support.h"
#include "data/tokens/token_file.h"

namespace headroom::data {

using Ids = std::vector<std::int32_t>;

inline std::map<std::string, std::string> token_metadata(std::int64_t vocabulary_size) {
  return {{"format", "headroom.tokens.1"},
          {"tokenizer_kind", "bytes"},
          {"tokenizer_name", "bytes-256-e3b0c442"},
          {"vocabulary_size", std::to_string(vocabulary_size)},
          {"text_bytes", "1"}};
}

// Writes ids for a vocabulary of this size; the stored tokenizer has the kind "bytes".
inline std::shared_ptr<const TokenFile> write_tokens(const std::string& path, const std::vector<std::int32_t>& ids,
                                                     std::int64_t vocabulary_size) {
  SafetensorsWriter writer;
  writer.add("tokens", DType::i32, {std::ssize(ids)}, std::as_bytes(std::span(ids)));
  writer.add("tokenizer", DType::u8, {0}, {});
  for (const auto& [key, value] : token_metadata(vocabulary_size)) {
    writer.set_metadata(key, value);
  }
  writer.write(path);
  return std::make_shared<const TokenFile>(path);
}

inline Ids ids_of(const TokenFile& file) {
  Ids ids(static_cast<std::size_t>(file.size()));
  file.copy(0, file.size(), ids.data());
  return ids;
}

class TokenFileTest : public FolderTest {
 protected:
  // Trains a word tokenizer on a text and writes the text as a token file.
  std::unique_ptr<tokenizers::Tokenizer> write_words(std::string_view text, const std::string& name,
                                                     int threads = 0) const {
    const auto source = open_text({write("words.txt", text)}, {});
    auto tokenizer = tokenizers::train_tokenizer({.kind = config::TokenizerKind::words, .vocabulary_size = 0}, *source);
    write_token_file(*source, *tokenizer, at(name), threads);
    return tokenizer;
  }
  std::string refusal(const std::string& name) const {
    return user_error_of([&] {
      const TokenFile file(at(name));
      ids_of(file);
      file.tokenizer();
    });
  }
};

}  // namespace headroom::data
