// Reads the settings in the files next to a vocabulary and its merges, as transformers does: the tokenizer's class
// determines the pre-tokenizer and the special tokens.
#include <algorithm>
#include <filesystem>
#include <map>

#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/core/json.h"
#include "model.h"

namespace headroom::tokenizers {
namespace {

namespace fs = std::filesystem;

struct TokenizerClass {
  std::string_view name, model_type, words;
  bool composes;
  std::string_view begin, padding;  // its bos_token and pad_token by default; empty: none
};
constexpr std::string_view kEnd = "<|endoftext|>";  // unk_token and eos_token of all classes by default
constexpr TokenizerClass kClasses[] = {{"GPT2Tokenizer", "gpt2", kGpt2Words, false, kEnd, ""},
                                       {"GPTNeoXTokenizer", "gpt_neox", kGpt2Words, true, kEnd, "<|padding|>"},
                                       {"Qwen2Tokenizer", "qwen2", kQwen2Words, true, "", kEnd}};

std::string text_at(const SortedJson& document, const char* key) {
  const auto found = document.find(key);
  return found != document.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// Returns the tokenizer class with this name or, if the name is empty, for this model type; null if unknown.
const TokenizerClass* find_class(std::string_view name, std::string_view model_type) {
  name = name.ends_with("Fast") ? name.substr(0, name.size() - 4) : name;
  for (const TokenizerClass& known : kClasses) {
    if (name.empty() ? model_type == known.model_type : name == known.name) {
      return &known;
    }
  }
  return nullptr;
}

// Returns the class that tokenizer_config.json names or else the class for the model in config.json.
const TokenizerClass& class_of(const SortedJson& settings, const fs::path& folder) {
  const std::string name = text_at(settings, "tokenizer_class");
  const bool names_none = name.empty() || name.starts_with("PreTrainedTokenizer") || name == "TokenizersBackend";
  const std::string kind = names_none ? text_at(read_json_object(folder / "config.json"), "model_type") : "";
  if (names_none && kind.empty()) {
    return kClasses[0];
  }
  if (const TokenizerClass* known = find_class(names_none ? "" : name, kind)) {
    return *known;
  }
  user_error("{}: {} is {}, whose vocabulary and merges are not supported; save the tokenizer as a tokenizer.json",
             (folder / (names_none ? "config.json" : "tokenizer_config.json")).string(),
             names_none ? "model_type" : "tokenizer_class", names_none ? kind : name);
}

std::map<std::string, std::string> tokens_of(const TokenizerClass& kind) {
  std::map<std::string, std::string> tokens = {{"unk_token", std::string(kEnd)}, {"eos_token", std::string(kEnd)}};
  if (!kind.begin.empty()) {
    tokens["bos_token"] = kind.begin;
  }
  if (!kind.padding.empty()) {
    tokens["pad_token"] = kind.padding;
  }
  return tokens;
}

// Returns the text of a token. Throws UserError if it absorbs blanks or matches whole words only.
std::string content_of(const NamedToken& named) {
  const SortedJson& content = named.content();
  if (!content.is_string()) {
    user_error("{} must be a token, got {}", named.place, named.token.dump());
  }
  for (const char* flag : {"single_word", "lstrip", "rstrip"}) {
    if (named.flag(flag)) {
      user_error("{}: {} is true for \"{}\", which is not supported", named.place, flag, content.get<std::string>());
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

constexpr const char* kKeys[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                 "pad_token", "cls_token", "mask_token"};  // in transformers' order

// Returns a file's JSON object with its keys in order; empty if there is no such file.
Json ordered(const fs::path& file) {
  return read_json_object(file).empty() ? Json::object() : parse_json(read_text_file(file), file.string());
}

}  // namespace

std::vector<NamedToken> named_special_tokens(const fs::path& folder,
                                             const std::map<std::string, std::string>& defaults) {
  constexpr const char *kExtra = "extra_special_tokens", *kMore = "additional_special_tokens";
  const fs::path settings_file = folder / "tokenizer_config.json", map_file = folder / "special_tokens_map.json";
  const Json settings = ordered(settings_file);
  // transformers reads it last, and only without added_tokens_decoder.
  const Json map = settings.contains("added_tokens_decoder") ? Json::object() : ordered(map_file);
  Json usual = Json::object(), objects = usual, strings = usual, named = usual, extra = Json::array(), more = extra;
  for (const auto& [key, token] : defaults) {
    usual[key] = token;
  }
  for (const Json* file : {&settings, &map}) {
    for (const auto& [key, token] : file->items()) {
      if (std::ranges::find(kKeys, key) != std::end(kKeys)) {
        usual[key] = token;
      } else if (key.ends_with("_token") && (token.is_string() || token.is_object())) {  // such as image_token
        (file == &settings && token.is_string() ? strings : objects)[key] = token;
      } else if (token.is_object() && (key == kExtra || key == "model_specific_special_tokens")) {
        named.update(token);
      } else if (token.is_array() && (key == kExtra || (key == kMore && more.empty()))) {
        Json& list = key == kExtra ? extra : more;
        list.insert(list.end(), token.begin(), token.end());
      }
    }
  }
  objects.update(strings);
  objects.update(named);

  std::vector<NamedToken> all;
  const auto add = [&](const std::string& key, const Json& token) {
    const fs::path& file = map.contains(key) ? map_file : settings_file;
    all.push_back({.token = token, .place = fmt::format("{}: {}", file.string(), key)});
  };
  for (const char* key : kKeys) {
    if (const Json token = usual.value(key, Json()); !token.is_null()) {
      add(key, token);
    }
  }
  for (const auto& [key, token] : objects.items()) {
    add(key, token);
  }
  for (const Json& token : extra.empty() ? more : extra) {
    add(extra.empty() ? kMore : kExtra, token);
  }
  return all;
}

std::map<std::string, std::string> default_tokens(const fs::path& folder) {
  const std::string name = text_at(read_json_object(folder / "tokenizer_config.json"), "tokenizer_class");
  const TokenizerClass* known = find_class(name, text_at(read_json_object(folder / "config.json"), "model_type"));
  return known != nullptr ? tokens_of(*known) : std::map<std::string, std::string>();
}

std::map<std::int32_t, NamedToken> added_tokens_beside(const fs::path& folder, const std::vector<NamedToken>& special) {
  const fs::path settings_file = folder / "tokenizer_config.json", added_file = folder / "added_tokens.json";
  const SortedJson settings = read_json_object(settings_file);
  std::map<std::int32_t, NamedToken> added;
  if (const auto found = settings.find("added_tokens_decoder"); found != settings.end() && found->is_object()) {
    for (const auto& [key, token] : found->items()) {
      const std::string place = fmt::format("{}: added_tokens_decoder.{}", settings_file.string(), key);
      const bool marks = token.is_object() && token.value("special", SortedJson()) == true;
      added[id_of(SortedJson::parse(key, nullptr, /*allow_exceptions=*/false), place)] = {token, place, marks};
    }
    return added;
  }
  const SortedJson tokens = read_json_object(added_file);
  for (const auto& [token, id] : tokens.items()) {
    const std::string place = fmt::format("{}: {}", added_file.string(), token);
    const auto is_this = [&name = token](const NamedToken& one) { return one.content() == name; };
    added[id_of(id, place)] = {token, place, std::ranges::any_of(special, is_this)};
  }
  return added;
}

PairSettings read_pair_settings(const fs::path& folder) {
  const fs::path settings_file = folder / "tokenizer_config.json";
  const SortedJson settings = read_json_object(settings_file);
  const TokenizerClass& kind = class_of(settings, folder);
  if (settings.value("add_prefix_space", SortedJson()) == true) {
    user_error("{}: add_prefix_space is true, but adding a blank before each text is not supported",
               settings_file.string());
  }
  PairSettings pair{.words = std::string(kind.words), .composes = kind.composes};
  const std::vector<NamedToken> special = named_special_tokens(folder, tokens_of(kind));
  for (const NamedToken& named : special) {
    pair.special.push_back(content_of(named));
  }
  for (const auto& [id, named] : added_tokens_beside(folder, special)) {
    pair.added.push_back(
        {.id = id, .content = content_of(named), .normalised = named.normalised(), .special = named.special});
  }
  return pair;
}

}  // namespace headroom::tokenizers
