#include <algorithm>
#include <utility>

#include "architecture.h"
#include "headroom/core/error.h"
#include "headroom/core/json.h"
#include "headroom/store/huggingface.h"

namespace headroom::store {
namespace {

constexpr const char* kIds[] = {"bos_token_id", "eos_token_id", "pad_token_id"};
constexpr const char* kTokens[] = {"bos_token", "eos_token", "unk_token", "pad_token"};
constexpr const char* kFlags[] = {"add_bos_token", "add_eos_token",        "add_prefix_space",
                                  "legacy",        "split_special_tokens", "clean_up_tokenization_spaces"};

bool is_id(const SortedJson& value) {
  return value.is_number_unsigned() && value.get<std::uint64_t>() <= INT32_MAX;
}

// The eos_token_id that transformers assumes if a config.json lacks the key; null: none.
Json default_end(std::string_view model_type) {
  ModelType found;
  for (const Architecture* architecture : architectures()) {
    for (const ModelType& one : architecture->names().kinds) {
      found = one.name == model_type ? one : found;
    }
  }
  return found.eos < 0 ? Json() : Json(static_cast<std::uint32_t>(found.eos));
}

Json ids_of(const SortedJson& config, const std::string& origin) {
  Json ids = Json::object();
  for (const char* key : kIds) {
    if (!config.contains(key)) {
      continue;
    }
    const SortedJson& value = config.at(key);
    const bool list = value.is_array() && std::ranges::all_of(value, is_id);
    const bool none = value.is_null() || value == SortedJson(-1);  // some files write -1 for none
    if (!none && !is_id(value) && !list) {
      user_error("{}: {} must be an id, a list of ids or null, got {}", origin, key, to_json_line(Json(value)));
    }
    ids[key] = none ? Json() : Json(value);
  }
  return ids;
}

// Returns a token, stored as a string or as an object with the string in "content".
Json token_of(const SortedJson& value, const std::string& origin, const char* key) {
  const SortedJson& text = value.is_object() && value.contains("content") ? value.at("content") : value;
  if (!text.is_string() && !text.is_null()) {
    user_error("{}: {} must be a token or null, got {}", origin, key, to_json_line(Json(value)));
  }
  return text;
}

Json tokenizer_settings(const std::filesystem::path& folder) {
  Json settings = Json::object();
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {  // the latter takes precedence
    const std::string origin = (folder / name).string();
    const SortedJson document = read_json_object(folder / name);
    for (const char* key : kTokens) {
      if (document.contains(key)) {
        settings[key] = token_of(document.at(key), origin, key);
      }
    }
    for (const char* key : kFlags) {
      if (document.contains(key) && document.at(key).is_boolean()) {
        settings[key] = document.at(key).get<bool>();
      }
    }
    if (const auto found = document.find("tokenizer_class"); found != document.end() && found->is_string()) {
      settings["tokenizer_class"] = found->get<std::string>();
    }
    if (document.contains("added_tokens_decoder")) {  // transformers then reads no other file
      break;
    }
  }
  return settings;
}

// Adds the ids of a file (one id or a list) that the tokenizer has.
void add_ids(const Json& ids, const tokenizers::Tokenizer& of, std::vector<std::int32_t>& all) {
  for (const Json& id : ids.is_array() ? ids : Json::array({ids})) {
    if (id.is_number_unsigned() && id.get<std::uint64_t>() < static_cast<std::uint64_t>(of.vocabulary_size())) {
      all.push_back(id.get<std::int32_t>());
    }
  }
}

// Returns the ids that the post-processor of a tokenizer.json prepends to every text. In a sequence, each step prepends
// to the output of the one before.
std::vector<std::int32_t> ids_in_front(const SortedJson& processor, const tokenizers::Tokenizer& tokenizer) {
  std::vector<std::int32_t> ids;
  const auto part = [](const SortedJson& object, const std::string& key) {
    return object.is_object() ? object.value(key, SortedJson()) : SortedJson();
  };
  for (const SortedJson& step : part(processor, "processors")) {
    const std::vector<std::int32_t> more = ids_in_front(step, tokenizer);
    ids.insert(ids.begin(), more.begin(), more.end());
  }
  if (const SortedJson first = part(processor, "cls"); first.is_array() && first.size() == 2) {  // Bert's and Roberta's
    add_ids(Json(first[1]), tokenizer, ids);
  }
  for (const SortedJson& item : part(processor, "single")) {
    const SortedJson name = part(part(item, "SpecialToken"), "id");
    if (!name.is_string()) {
      break;
    }
    const SortedJson known = part(part(part(processor, "special_tokens"), name), "ids");
    add_ids(known.is_null() ? Json(static_cast<std::uint32_t>(tokenizer.id_of(name.get<std::string>()))) : Json(known),
            tokenizer, ids);
  }
  return ids;
}

// Like transformers, uses tokenizer.json; without it, tokenizer_config.json.
std::vector<std::int32_t> begin_of(const std::filesystem::path& folder, const SpecialTokens& tokens,
                                   const tokenizers::Tokenizer& tokenizer) {
  const SortedJson document = read_json_object(folder / "tokenizer.json");
  if (!document.empty()) {
    return ids_in_front(document.value("post_processor", SortedJson()), tokenizer);
  }
  // Defaults to LLaMA's tokenizer class.
  const std::string kind = tokens.tokenizer.value("tokenizer_class", std::string("LlamaTokenizer"));
  const bool begins =
      tokens.tokenizer.value("add_bos_token", tokenizer.kind() == config::TokenizerKind::sentencepiece &&
                                                  kind.find("Llama") != std::string::npos);
  const std::int32_t bos = begins ? tokens.id("bos_token", tokenizer) : -1;
  return bos >= 0 ? std::vector<std::int32_t>{bos} : std::vector<std::int32_t>();
}

}  // namespace

std::string SpecialTokens::name(const char* key) const {
  const auto found = tokenizer.find(key);
  return found != tokenizer.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::int32_t SpecialTokens::id(const char* key, const tokenizers::Tokenizer& of) const {
  if (const std::string named = name(key); !named.empty()) {
    return of.id_of(named);
  }
  std::vector<std::int32_t> ids;
  if (!tokenizer.contains(key)) {
    add_ids(config.value(std::string(key) + "_id", Json()), of, ids);
  }
  return ids.empty() ? -1 : ids.front();
}

std::vector<std::int32_t> SpecialTokens::begin(const tokenizers::Tokenizer& of) const {
  std::vector<std::int32_t> ids;
  for (const std::int32_t id : in_front) {
    if (id >= 0 && id < of.vocabulary_size()) {
      ids.push_back(id);
    }
  }
  return ids;
}

std::set<std::int32_t> SpecialTokens::ends(const tokenizers::Tokenizer& of) const {
  constexpr const char* kKey = "eos_token_id";
  std::vector<std::int32_t> ids;
  add_ids(generation.value(kKey, Json()), of, ids);
  if (ids.empty()) {
    add_ids(config.value(kKey, Json()), of, ids);
  }
  if (const std::int32_t named = of.id_of(name("eos_token")); named >= 0) {
    ids.push_back(named);
  }
  if (ids.empty() && !model_type.empty() && !config.contains(kKey) && !generation.contains(kKey)) {
    add_ids(default_end(model_type), of, ids);
  }
  return {ids.begin(), ids.end()};
}

SpecialTokens read_special_tokens(const std::filesystem::path& folder, const SortedJson& config,
                                  const tokenizers::Tokenizer& tokenizer) {
  const std::filesystem::path generation = folder / "generation_config.json";
  SpecialTokens tokens{.config = ids_of(config, (folder / "config.json").string()),
                       .generation = ids_of(read_json_object(generation), generation.string()),
                       .tokenizer = tokenizer_settings(folder),
                       .model_type = config.value("model_type", "")};
  tokens.in_front = begin_of(folder, tokens, tokenizer);
  return tokens;
}

void store_special_tokens(const SpecialTokens& tokens, Checkpoint& checkpoint) {
  checkpoint.metadata[kSpecialTokens] = to_json_line({{"config", tokens.config},
                                                      {"generation", tokens.generation},
                                                      {"tokenizer", tokens.tokenizer},
                                                      {"in_front", tokens.in_front},
                                                      {"model_type", tokens.model_type}});
}

std::optional<SpecialTokens> stored_special_tokens(const Checkpoint& checkpoint) {
  const auto found = checkpoint.metadata.find(kSpecialTokens);
  if (found == checkpoint.metadata.end()) {
    return std::nullopt;
  }
  const Json stored = parse_json(found->second, kSpecialTokens);
  const auto object_at = [&](const char* key, const Json& otherwise) {
    const Json object = stored.is_object() ? stored.value(key, otherwise) : Json();
    if (!object.is_object()) {
      user_error("{}: metadata of the checkpoint: must be an object with config and tokenizer", kSpecialTokens);
    }
    return object;
  };
  const Json model_type = stored.is_object() ? stored.value("model_type", Json()) : Json();
  std::vector<std::int32_t> in_front;
  const Json ids = stored.is_object() ? stored.value("in_front", Json()) : Json();
  for (const Json& id : ids.is_array() ? ids : Json::array()) {
    in_front.push_back(id.is_number_integer() ? id.get<std::int32_t>() : -1);
  }
  return SpecialTokens{.config = object_at("config", Json()),
                       .generation = object_at("generation", Json()),
                       .tokenizer = object_at("tokenizer", Json()),
                       .in_front = std::move(in_front),
                       .model_type = model_type.is_string() ? model_type.get<std::string>() : ""};
}

SpecialTokens default_special_tokens(const tokenizers::Tokenizer& tokenizer) {
  SpecialTokens tokens;
  const auto name = [&](const char* key, const std::string& token) {
    tokens.tokenizer[key] = tokenizer.id_of(token) >= 0 ? Json(token) : Json();
  };
  switch (tokenizer.kind()) {
    case config::TokenizerKind::sentencepiece:
      name("bos_token", "<s>");
      name("eos_token", "</s>");
      name("pad_token", "</s>");
      name("unk_token", "<unk>");
      tokens.tokenizer["split_special_tokens"] = true;  // "<s>" in a text is not the special token
      break;
    case config::TokenizerKind::bytes:
    case config::TokenizerKind::bpe: {
      const std::string none =
          tokenizer.kind() == config::TokenizerKind::bytes ? std::string(1, '\0') : std::string("<|endoftext|>");
      name("bos_token", none);
      name("eos_token", none);
      name("pad_token", none);
      if (tokenizer.kind() == config::TokenizerKind::bpe && tokens.tokenizer["pad_token"].is_null()) {
        // Padding is masked, so any token will do. This one is the byte 0xff, which UTF-8 never has.
        tokens.tokenizer["pad_token"] = "\u00ff";
        tokens.tokenizer["split_special_tokens"] = true;  // a y with diaeresis in a text is not the special token
      }
      break;
    }
    case config::TokenizerKind::words:
      break;
  }
  return tokens;
}

SpecialTokens special_tokens_of(const Checkpoint& checkpoint) {
  std::optional<SpecialTokens> stored = stored_special_tokens(checkpoint);
  return stored ? std::move(*stored) : default_special_tokens(*checkpoint.tokenizer);
}

}  // namespace headroom::store
