// Writes short texts and token files, with the tokenizer of bytes, to a temporary folder.
#pragma once

#include <iterator>
#include <memory>

#include "data/tokens/token_file.h"
#include "foundation/core/random.h"
#include "headroom/core/files.h"
#include "headroom/tokenizers/tokenizer.h"
#include "one_thread.h"
#include "tiny/folder.h"
#include "tiny/options.h"

namespace headroom::tiny {

// Returns sentences of a few words in a fixed random order.
inline std::string text(std::size_t bytes, std::uint64_t seed = 1) {
  constexpr const char* kWords[] = {"the", "head", "room", "attends", "to", "every", "token", "twice", "and", "rests"};
  Random random(seed);
  std::string out;
  while (out.size() < bytes) {
    out += kWords[random.below(std::size(kWords))];
    out += random.below(6) == 0 ? ".\n" : " ";
  }
  return out.substr(0, bytes - 1) + "\n";
}

inline std::shared_ptr<const tokenizers::Tokenizer> bytes_tokenizer() {
  return tokenizers::restore_tokenizer(config::TokenizerKind::bytes, "", "test");
}

// Writes `content` to `name`.txt in the folder and returns its bytes as a token file.
inline std::shared_ptr<const data::TokenFile> token_file(const Folder& folder, const std::string& name,
                                                         const std::string& content) {
  const std::filesystem::path source = folder / (name + ".txt"), target = folder / (name + ".tokens");
  write_text_file(source, content);
  const auto text_source = data::open_text({source.string()}, {});
  data::write_token_file(*text_source, *bytes_tokenizer(), target);
  return std::make_shared<const data::TokenFile>(target);
}

}  // namespace headroom::tiny
