// What begins and ends texts: of models from elsewhere as their folder says it, and what other programs are told of
// those that were trained here, whose texts begin after a line end.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "headroom/core/json.h"
#include "headroom/store/checkpoint.h"

namespace headroom::store {

struct SpecialTokens {
  Json config = Json::object();     // of config.json: bos_token_id, eos_token_id, pad_token_id; as far as it has them
  Json tokenizer = Json::object();  // of tokenizer_config.json: bos_token, ..., add_bos_token, tokenizer_class, ...
  bool in_front = false;            // the tokenizer puts bos in front of every text

  // "" and -1: there is none. A name that the tokenizer lacks is none; without names the ids of config.json count.
  std::string name(const char* key) const;  // "bos_token"
  std::int32_t id(const char* key, const tokenizers::Tokenizer& tokenizer) const;
};

// Of a Hugging Face folder, whose config.json has been read. Throws UserError naming the file and the key that is of
// another type than it should be.
SpecialTokens read_special_tokens(const std::filesystem::path& folder, const SortedJson& config,
                                  const tokenizers::Tokenizer& tokenizer);

// Kept in a checkpoint's metadata; nothing: the model was trained here, or imported by an earlier version.
void keep_special_tokens(const SpecialTokens& tokens, Checkpoint& checkpoint);
std::optional<SpecialTokens> kept_special_tokens(const Checkpoint& checkpoint);
// The metadata is the trainer's own but for this entry.
inline constexpr const char* kSpecialTokens = "special_tokens";

// What stands in for them in the files of a tokenizer whose model was trained here: tokens that no text gives, for
// programs that ask for some. The model has never read them.
SpecialTokens own_special_tokens(const tokenizers::Tokenizer& tokenizer);
// Those that are kept, or else its tokenizer's own.
SpecialTokens special_tokens_of(const Checkpoint& checkpoint);

}  // namespace headroom::store
