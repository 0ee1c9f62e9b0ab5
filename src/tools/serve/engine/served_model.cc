#include "served_model.h"

#include <ctime>
#include <filesystem>
#include <map>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "foundation/core/text/utf8.h"
#include "headroom/decode/generate.h"
#include "tools/serve/json_fields.h"

namespace headroom::serve {
namespace {

const models::LanguageModel& language_model_of(const store::OpenedModel& opened) {
  const std::string what = "serve: " + opened.name;
  const models::LanguageModel& model = models::as_language_model(*opened.model, what);
  decode::require_tokenizer_of(model, *opened.checkpoint.tokenizer, what);
  return model;
}

// Returns the ids from `encode`, and converts its errors to ApiErrors about the prompt.
template <class Encode>
TokenIds prompt_tokens(const Encode& encode) {
  try {
    const std::vector<std::int32_t> ids = encode();
    return {ids.begin(), ids.end()};
  } catch (const UserError& error) {
    throw ApiError(400, "invalid_value", "prompt", fmt::format("prompt: {}", error.what()));
  }
}

std::string escaped_bytes(std::string_view text) {
  std::string escaped = "bytes:";
  for (const char byte : text) {
    escaped += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  }
  return escaped;
}

// Returns a token of one letter. Tokens decoded after it keep the text they have inside a sentence. Empty if there is
// none.
std::vector<std::int32_t> letter_token(const tokenizers::Tokenizer& tokenizer) {
  for (std::int32_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
    const std::string text = tokenizer.decode(std::vector<std::int32_t>{id});
    const bool letter = text.size() == 1 && ((text[0] >= 'a' && text[0] <= 'z') || (text[0] >= 'A' && text[0] <= 'Z'));
    if (letter) {
      return {id};
    }
  }
  return {};
}

// Names the tokens that decoding omits: SentencePiece's byte tokens, and special tokens.
std::map<std::int32_t, std::string> special_names(const tokenizers::Tokenizer& tokenizer,
                                                  const store::SpecialTokens& special) {
  std::map<std::int32_t, std::string> names;
  for (int byte = 0; byte < 256; ++byte) {
    const char value = static_cast<char>(byte);
    names[tokenizer.id_of(fmt::format("<0x{:02X}>", byte))] = escaped_bytes({&value, 1});
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
  const std::vector<std::int32_t> before = letter_token(tokenizer);
  const std::map<std::int32_t, std::string> names = special_names(tokenizer, special);
  std::unordered_set<std::string> taken;
  for (const auto& [id, name] : names) {
    taken.insert(name);
  }
  for (std::int32_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
    if (const auto named = names.find(id); named != names.end()) {
      texts_.push_back(named->second);
      continue;
    }
    const std::string text = tokenizers::text_after(tokenizer, before, id);
    std::string written = is_utf8(text) ? text : escaped_bytes(text);
    if (written.empty() || !taken.insert(written).second) {
      written = fmt::format("token:{}", id);
      taken.insert(written);
    }
    texts_.push_back(written);
  }
}

ServedModel::ServedModel(std::string name, store::OpenedModel opened, std::int64_t max_length)
    : name_(std::move(name)),
      opened_(std::move(opened)),
      model_(language_model_of(opened_)),
      imported_(store::stored_special_tokens(opened_.checkpoint).has_value()),
      special_(store::special_tokens_of(opened_.checkpoint)),
      token_text_(tokenizer(), special_),
      // One more than the context, because the model never reads the last token of an answer.
      max_length_(max_length > 0 ? max_length : model_.options().context_length + 1),
      ends_(imported_ ? special_.ends(tokenizer()) : std::set<std::int32_t>()),
      opened_at_(std::time(nullptr)) {}

TokenIds ServedModel::encode(const std::string& text, bool add_special_tokens) const {
  TokenIds ids;
  if (add_special_tokens) {
    for (const std::int32_t begin : special_.begin(tokenizer())) {
      ids.push_back(begin);
    }
  }
  for (const auto& item : special_.tokenizer.items()) {
    if (!text.empty() && item.value().is_string() && item.value().get_ref<const std::string&>() == text) {
      if (const std::int32_t id = special_.id(item.key().c_str(), tokenizer()); id >= 0) {
        return {id};
      }
    }
  }
  const TokenIds own = prompt_tokens([&] { return tokenizer().encode(text); });
  ids.insert(ids.end(), own.begin(), own.end());
  return ids;
}

void ServedModel::check_ids(const TokenIds& ids, const std::string& field) const {
  for (const std::int64_t id : ids) {
    if (id < 0 || id >= tokenizer().vocabulary_size()) {
      refuse_field(field, "token ids of model {} must be below {}, got {}", name_, tokenizer().vocabulary_size(), id);
    }
  }
}

std::string ServedModel::decode(const TokenIds& ids, const std::string& field) const {
  check_ids(ids, field);
  return repair_utf8(tokenizer().decode(std::vector<std::int32_t>(ids.begin(), ids.end())));
}

TokenIds ServedModel::prompt_ids(const Prompt& prompt, std::int64_t max_tokens, const std::string& field) const {
  TokenIds ids;
  if (const auto* given = std::get_if<TokenIds>(&prompt); given != nullptr) {
    check_ids(*given, field);
    ids = *given;
  } else {
    ids = encode(std::get<std::string>(prompt), true);
    if (ids.empty()) {
      ids = prompt_tokens([&] { return tokenizers::beginning_of_text(tokenizer()); });
    }
  }
  if (std::ssize(ids) + max_tokens > max_length_) {
    refuse(400, "context_length_exceeded", field,
           "{}: prompt and answer must have at most {} tokens together with model {}, got {} and max_tokens {}", field,
           max_length_, name_, ids.size(), max_tokens);
  }
  return ids;
}

Json ServedModel::about() const {
  return {{"id", name_},
          {"object", "model"},
          {"created", opened_at_},
          {"owned_by", "headroom"},
          {"checkpoint", std::filesystem::path(opened_.name).filename().string()},
          {"step", opened_.checkpoint.step},
          {"context_length", model_.options().context_length},
          {"max_model_len", max_length_},
          {"vocabulary_size", tokenizer().vocabulary_size()}};
}

Json ServedModel::about_tokenizer() const {
  Json about = {{"tokenizer_class", tokenizer().name()},
                {"vocabulary_size", tokenizer().vocabulary_size()},
                {"model_max_length", max_length_}};
  for (const char* key : {"bos_token", "eos_token", "pad_token", "unk_token"}) {
    const std::string name = special_.name(key);
    about[key] = name.empty() || special_.id(key, tokenizer()) < 0 ? Json() : Json(name);
  }
  if (about["bos_token"].is_null() && about["eos_token"].is_null() && encode("\n", false).size() == 1) {
    about["bos_token"] = "\n";  // the text that preceded each document in training
  }
  about["add_bos_token"] = !special_.begin(tokenizer()).empty();
  about["chat_template"] = nullptr;
  return about;
}

}  // namespace headroom::serve
