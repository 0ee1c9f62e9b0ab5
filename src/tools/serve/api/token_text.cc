#include "token_text.h"

#include <map>
#include <string_view>
#include <unordered_set>

#include "foundation/core/text/utf8.h"

namespace headroom::serve {
namespace {

std::string spelled_bytes(std::string_view text) {
  std::string spelled = "bytes:";
  for (const char byte : text) {
    spelled += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  }
  return spelled;
}

// A token after which every other one has the text that it has inside a text; nothing: none was found.
std::vector<std::int32_t> usual_neighbour(const tokenizers::Tokenizer& tokenizer) {
  for (std::int32_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
    const std::string text = tokenizer.decode(std::vector<std::int32_t>{id});
    const bool letter = text.size() == 1 && ((text[0] >= 'a' && text[0] <= 'z') || (text[0] >= 'A' && text[0] <= 'Z'));
    if (letter) {
      return {id};
    }
  }
  return {};
}

// Tokens that are not what decoding shows of them: SentencePiece's bytes, and those that mark something.
std::map<std::int32_t, std::string> named_tokens(const tokenizers::Tokenizer& tokenizer,
                                                 const store::SpecialTokens& special) {
  std::map<std::int32_t, std::string> names;
  for (int byte = 0; byte < 256; ++byte) {
    const char value = static_cast<char>(byte);
    names[tokenizer.id_of(fmt::format("<0x{:02X}>", byte))] = spelled_bytes({&value, 1});
  }
  if (tokenizer.kind() != config::TokenizerKind::bytes) {
    for (const auto& item : special.tokenizer.items()) {
      if (const std::string name = special.name(item.key().c_str()); !name.empty()) {
        names[tokenizer.id_of(name)] = name;
      }
    }
  }
  names.erase(-1);
  return names;
}

}  // namespace

TokenText::TokenText(const tokenizers::Tokenizer& tokenizer, const store::SpecialTokens& special) {
  const std::vector<std::int32_t> neighbour = usual_neighbour(tokenizer);
  const std::map<std::int32_t, std::string> names = named_tokens(tokenizer, special);
  std::unordered_set<std::string> taken;
  for (const auto& [id, name] : names) {
    taken.insert(name);
  }
  for (std::int32_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
    if (const auto named = names.find(id); named != names.end()) {
      spelled_.push_back(named->second);
      continue;
    }
    const std::string text = tokenizers::text_after(tokenizer, neighbour, id);
    std::string spelled = is_utf8(text) ? text : spelled_bytes(text);
    if (spelled.empty() || !taken.insert(spelled).second) {
      spelled = fmt::format("token:{}", id);
      taken.insert(spelled);
    }
    spelled_.push_back(spelled);
  }
}

}  // namespace headroom::serve
