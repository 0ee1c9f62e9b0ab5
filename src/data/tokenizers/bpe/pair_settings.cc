// Reads the settings in the files next to a vocabulary and its merges, as transformers does: the tokenizer's class
// determines the pre-tokenizer and the special tokens.
#include <algorithm>
#include <filesystem>
#include <map>

#include "headroom/core/error.h"
#include "headroom/core/json.h"
#include "model.h"

namespace headroom::tokenizers {
namespace {

namespace fs = std::filesystem;

struct TokenizerClass {
  std::string_view name, model_type, words;
  bool composes;
  std::string_view padding;  // its pad_token by default; empty: none
};
constexpr TokenizerClass kClasses[] = {{"GPT2Tokenizer", "gpt2", kGpt2Words, false, ""},
                                       {"GPTNeoXTokenizer", "gpt_neox", kGpt2Words, true, "<|padding|>"},
                                       {"Qwen2Tokenizer", "qwen2", kQwen2Words, true, "<|endoftext|>"}};

std::string text_at(const SortedJson& document, const char* key) {
  const auto found = document.find(key);
  return found != document.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// Returns the class that tokenizer_config.json names or, without a name, that of the model in config.json.
const TokenizerClass& class_of(const SortedJson& settings, const fs::path& folder) {
  std::string name = text_at(settings, "tokenizer_class");
  if (name.ends_with("Fast")) {
    name.resize(name.size() - 4);
  }
  const bool names_none = name.empty() || name == "PreTrainedTokenizer" || name == "TokenizersBackend";
  const std::string kind = names_none ? text_at(read_json_object(folder / "config.json"), "model_type") : "";
  if (names_none && kind.empty()) {
    return kClasses[0];
  }
  for (const TokenizerClass& known : kClasses) {
    if (names_none ? kind == known.model_type : name == known.name) {
      return known;
    }
  }
  user_error("{}: {} is {}, whose vocabulary and merges are not supported; save the tokenizer as a tokenizer.json",
             (folder / (names_none ? "config.json" : "tokenizer_config.json")).string(),
             names_none ? "model_type" : "tokenizer_class", names_none ? kind : name);
}

// Returns the text of a token, which is a string or an object. Throws UserError if it absorbs blanks or matches whole
// words only.
std::string content_of(const SortedJson& token, const std::string& place) {
  const SortedJson& content = token.is_object() && token.contains("content") ? token.at("content") : token;
  if (!content.is_string()) {
    user_error("{} must be a token, got {}", place, token.dump());
  }
  for (const char* flag : {"single_word", "lstrip", "rstrip"}) {
    if (token.is_object() && token.value(flag, SortedJson()) == true) {
      user_error("{}: {} is true for \"{}\", which is not supported", place, flag, content.get<std::string>());
    }
  }
  return content.get<std::string>();
}

std::int32_t id_of(const SortedJson& id, const std::string& place) {
  if (!id.is_number_unsigned() || id.get<std::uint64_t>() > INT32_MAX) {
    user_error("{} must be an id from 0 to 2147483647, got {}", place, id.dump());
  }
  return id.get<std::int32_t>();
}

}  // namespace

std::vector<NamedToken> named_special_tokens(const fs::path& folder,
                                             const std::map<std::string, std::string>& defaults) {
  constexpr const char* kKeys[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                   "pad_token", "cls_token", "mask_token"};  // in transformers' order
  constexpr const char* kLists[] = {"additional_special_tokens", "extra_special_tokens"};
  std::map<std::string, NamedToken> named;
  for (const auto& [key, token] : defaults) {
    named[key] = {.token = token, .place = key};
  }
  std::vector<NamedToken> listed;
  for (const char* name : {"special_tokens_map.json", "tokenizer_config.json"}) {  // the latter takes precedence
    const SortedJson document = read_json_object(folder / name);
    const auto token_at = [&](const char* key, const SortedJson& token) -> NamedToken {
      return {.token = token, .place = fmt::format("{}: {}", (folder / name).string(), key)};
    };
    for (const char* key : kKeys) {
      if (const auto found = document.find(key); found != document.end()) {
        named[key] = token_at(key, *found);
      }
    }
    for (const char* key : kLists) {
      for (const SortedJson& token : document.value(key, SortedJson())) {
        listed.push_back(token_at(key, token));
      }
    }
  }
  std::vector<NamedToken> all;
  for (const char* key : kKeys) {
    if (const auto found = named.find(key); found != named.end() && !found->second.token.is_null()) {
      all.push_back(found->second);
    }
  }
  all.insert(all.end(), listed.begin(), listed.end());
  return all;
}

PairSettings read_pair_settings(const fs::path& folder) {
  const fs::path settings_file = folder / "tokenizer_config.json", added_file = folder / "added_tokens.json";
  const SortedJson settings = read_json_object(settings_file);
  const TokenizerClass& kind = class_of(settings, folder);
  if (settings.value("add_prefix_space", SortedJson()) == true) {
    user_error("{}: add_prefix_space is true, but adding a blank before each text is not supported",
               settings_file.string());
  }
  PairSettings pair{.words = std::string(kind.words), .composes = kind.composes};
  std::map<std::string, std::string> defaults = {{"unk_token", "<|endoftext|>"}, {"eos_token", "<|endoftext|>"}};
  if (!kind.padding.empty()) {
    defaults["pad_token"] = kind.padding;
  }
  for (const NamedToken& named : named_special_tokens(folder, defaults)) {
    pair.special.push_back(content_of(named.token, named.place));
  }
  const auto is_special = [&](const std::string& token) {
    return std::find(pair.special.begin(), pair.special.end(), token) != pair.special.end();
  };
  std::map<std::int32_t, AddedToken> added;
  const SortedJson added_tokens = read_json_object(added_file);
  for (const auto& [token, id] : added_tokens.items()) {
    const std::int32_t number = id_of(id, fmt::format("{}: {}", added_file.string(), token));
    added[number] = {.id = number, .content = token, .normalised = !is_special(token), .special = is_special(token)};
  }
  if (const auto found = settings.find("added_tokens_decoder"); found != settings.end() && found->is_object()) {
    for (const auto& [key, token] : found->items()) {
      const std::string place = fmt::format("{}: added_tokens_decoder.{}", settings_file.string(), key);
      const std::int32_t id = id_of(SortedJson::parse(key, nullptr, /*allow_exceptions=*/false), place);
      const bool special = token.is_object() && token.value("special", SortedJson()) == true;
      const bool normalised = token.is_object() && token.value("normalized", SortedJson(!special)) == true;
      added[id] = {.id = id, .content = content_of(token, place), .normalised = normalised, .special = special};
    }
  }
  for (auto& [id, token] : added) {
    pair.added.push_back(std::move(token));
  }
  return pair;
}

}  // namespace headroom::tokenizers
