#include "served_model.h"

#include <ctime>
#include <utility>

#include "foundation/core/text/utf8.h"
#include "headroom/decode/generate.h"
#include "tools/serve/api/api_error.h"

namespace headroom::serve {
namespace {

const models::LanguageModel& language_model_of(const store::OpenedModel& opened) {
  const std::string what = "serve: " + opened.name;
  const models::LanguageModel& model = models::as_language_model(*opened.model, what);
  decode::require_tokenizer_of(model, *opened.checkpoint.tokenizer, what);
  return model;
}

// Tokens of a prompt, by `encode`.
template <class Encode>
TokenIds prompt_tokens(const Encode& encode) {
  try {
    const std::vector<std::int32_t> ids = encode();
    return {ids.begin(), ids.end()};
  } catch (const UserError& error) {
    throw ApiError(400, "invalid_value", "prompt", fmt::format("prompt: {}", error.what()));
  }
}

}  // namespace

ServedModel::ServedModel(std::string name, store::OpenedModel opened, std::int64_t longest)
    : name_(std::move(name)),
      opened_(std::move(opened)),
      model_(language_model_of(opened_)),
      imported_(store::stored_special_tokens(opened_.checkpoint).has_value()),
      special_(store::special_tokens_of(opened_.checkpoint)),
      token_text_(tokenizer(), special_),
      // The last token of an answer is never read.
      longest_(longest > 0 ? longest : model_.options().context_length + 1),
      end_id_(imported_ ? special_.id("eos_token", tokenizer()) : -1),
      opened_at_(std::time(nullptr)) {}

TokenIds ServedModel::encode(const std::string& text, bool begins) const {
  TokenIds ids;
  if (begins && imported_ && special_.in_front) {
    ids.push_back(special_.id("bos_token", tokenizer()));
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
  if (std::ssize(ids) + max_tokens > longest_) {
    refuse(
        400, "context_length_exceeded", field,
        "{}: model {} takes {} tokens, of the prompt and its answer together: the prompt has {}, and max_tokens is {}",
        field, name_, longest_, ids.size(), max_tokens);
  }
  return ids;
}

Json ServedModel::about() const {
  return {{"id", name_},
          {"object", "model"},
          {"created", opened_at_},
          {"owned_by", "headroom"},
          {"checkpoint", opened_.name},
          {"step", opened_.checkpoint.step},
          {"context_length", model_.options().context_length},
          {"max_model_len", longest_},
          {"vocabulary_size", tokenizer().vocabulary_size()}};
}

Json ServedModel::about_tokenizer() const {
  Json about = {{"tokenizer_class", tokenizer().name()},
                {"vocabulary_size", tokenizer().vocabulary_size()},
                {"model_max_length", longest_}};
  for (const char* key : {"bos_token", "eos_token", "pad_token", "unk_token"}) {
    const std::string name = special_.name(key);
    about[key] = name.empty() || special_.id(key, tokenizer()) < 0 ? Json() : Json(name);
  }
  if (about["bos_token"].is_null() && about["eos_token"].is_null() && encode("\n", false).size() == 1) {
    about["bos_token"] = "\n";  // as texts began in training
  }
  about["add_bos_token"] = imported_ && special_.in_front;
  about["chat_template"] = nullptr;
  return about;
}

}  // namespace headroom::serve
