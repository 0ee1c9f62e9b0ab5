#include "served_model.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <limits>
#include <map>
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

namespace {

constexpr std::int64_t kMaxPrompts = 2048, kMaxAnswers = 128, kMaxLogprobs = 20;
constexpr std::size_t kMaxStops = 16, kMaxStopBytes = 256;
constexpr std::int64_t kMaxTokens = 1 << 24;

TokenIds token_ids(const SortedJson& list, const std::string& where) {
  if (list.empty()) {
    refuse_field(where, "must have at least one token");
  }
  TokenIds ids;
  ids.reserve(list.size());
  for (const SortedJson& id : list) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() > std::numeric_limits<std::int32_t>::max()) {
      refuse_field(where, "must hold only token ids, got {}", describe(id));
    }
    ids.push_back(id.get<std::int64_t>());
  }
  return ids;
}

// A string, a list of token ids, or a list of either.
std::vector<Prompt> prompts_of(const SortedJson* value) {
  if (value == nullptr) {
    refuse_field("prompt", "is required");
  }
  if (value->is_string()) {
    return {value->get<std::string>()};
  }
  if (!value->is_array() || value->empty()) {
    refuse_field("prompt", "must be a string, a list of token ids, or a list of either, got {}", describe(*value));
  }
  if (value->front().is_number()) {
    return {token_ids(*value, "prompt")};
  }
  if (std::ssize(*value) > kMaxPrompts) {
    refuse_field("prompt", "must have at most {} prompts, got {}", kMaxPrompts, value->size());
  }
  if (!value->front().is_string() && !value->front().is_array()) {
    refuse_field("prompt[0]", "must be a string, a token id or a list of token ids, got {}", describe(value->front()));
  }
  std::vector<Prompt> prompts;
  const bool texts = value->front().is_string();
  for (const SortedJson& one : *value) {
    const std::string where = fmt::format("prompt[{}]", prompts.size());
    if (texts ? !one.is_string() : !one.is_array()) {
      refuse_field(where, "must be {} like the first, got {}", texts ? "a string" : "a list of token ids",
                   describe(one));
    }
    texts ? prompts.emplace_back(one.get<std::string>()) : prompts.emplace_back(token_ids(one, where));
  }
  return prompts;
}

std::vector<std::string> stops_of(const SortedJson* value) {
  if (value == nullptr) {
    return {};
  }
  const SortedJson list = value->is_array() ? *value : SortedJson::array({*value});
  if (list.size() > kMaxStops) {
    refuse_field("stop", "must have at most {} strings, got {}", kMaxStops, list.size());
  }
  std::vector<std::string> stops;
  for (const SortedJson& stop : list) {
    if (!stop.is_string() || stop.get_ref<const std::string&>().empty() ||
        stop.get_ref<const std::string&>().size() > kMaxStopBytes) {
      refuse_field("stop", "must be a string of 1 to {} bytes, or a list of such strings, got {}", kMaxStopBytes,
                   describe(stop));
    }
    stops.push_back(stop.get<std::string>());
  }
  return stops;
}

// Accepts any 64-bit integer, signed or unsigned.
std::optional<std::int64_t> seed_of(const SortedJson* value) {
  if (value == nullptr) {
    return std::nullopt;
  }
  if (!value->is_number_integer()) {
    refuse_field("seed", "must be an integer of 64 bits, got {}", describe(*value));
  }
  return value->is_number_unsigned() ? static_cast<std::int64_t>(value->get<std::uint64_t>())
                                     : value->get<std::int64_t>();
}

// Checks the fields of this API and its relatives for which only the value that changes nothing is supported.
void check_neutral(JsonFields& fields, const CompletionRequest& request) {
  SortedJson neutral = SortedJson::parse(R"({
      "presence_penalty": 0, "frequency_penalty": 0, "repetition_penalty": 1, "repeat_penalty": 1, "length_penalty": 1,
      "no_repeat_ngram_size": 0, "dry_multiplier": 0, "xtc_probability": 0, "min_p": 0, "top_a": 0, "typical_p": 1,
      "tfs_z": 1, "mirostat": 0, "mirostat_mode": 0, "num_beams": 1, "use_beam_search": false, "early_stopping": false,
      "min_tokens": 0, "stop_token_ids": [], "bad_words": [], "ignore_eos": false, "include_stop_str_in_output": false,
      "suffix": "", "logit_bias": {}, "tools": [], "metadata": {}, "store": false, "response_format": {"type": "text"},
      "service_tier": "auto", "priority": 0, "add_special_tokens": true, "skip_special_tokens": true,
      "spaces_between_special_tokens": true, "return_token_ids": false, "return_tokens_as_token_ids": false})");
  neutral["best_of"] = request.n;
  for (const auto& [name, only] : neutral.items()) {
    if (const SortedJson* value = fields.take(name.c_str()); value != nullptr && *value != only) {
      refuse(400, "unsupported_parameter", name, "{}: only {} is supported, got {}", name, only.dump(),
             describe(*value));
    }
  }
}

}  // namespace

CompletionRequest parse_completion_request(std::string_view body) {
  JsonFields fields(body);
  CompletionRequest request;
  request.model = fields.text("model").value_or("");
  request.prompts = prompts_of(fields.take("prompt"));
  request.max_tokens = fields.whole_number("max_tokens", 0, kMaxTokens).value_or(request.max_tokens);
  request.temperature = fields.number("temperature", 0.0, 2.0).value_or(request.temperature);
  request.top_p = fields.number("top_p", 0.0, 1.0).value_or(request.top_p);
  if (request.top_p == 0.0) {
    refuse_field("top_p", "must be above 0 and at most 1, got 0");
  }
  // -1 means all tokens, as 0 does.
  const auto top_k = fields.whole_number("top_k", -1, std::numeric_limits<std::int32_t>::max());
  request.top_k = std::max<std::int64_t>(0, top_k.value_or(request.top_k));
  request.seed = seed_of(fields.take("seed"));
  request.n = fields.whole_number("n", 1, kMaxAnswers).value_or(request.n);
  request.stop = stops_of(fields.take("stop"));
  request.echo = fields.flag("echo", false);
  request.logprobs = fields.whole_number("logprobs", 0, kMaxLogprobs).value_or(request.logprobs);
  request.stream = fields.flag("stream", false);
  request.routing = fields.flag("routing", false);
  if (const SortedJson* options = fields.take("stream_options"); options != nullptr) {
    if (!request.stream) {
      refuse_field("stream_options", "needs \"stream\": true");
    }
    JsonFields inner(*options, "stream_options.");
    request.include_usage = inner.flag("include_usage", false);
    inner.finish();
  }
  check_neutral(fields, request);
  fields.text("user");  // identifies an end user to OpenAI; nothing depends on it here
  fields.finish({"prompt_logprobs", "messages", "max_completion_tokens"});
  if (request.max_tokens == 0 && !request.echo) {
    refuse_field("max_tokens", "must be at least 1 without \"echo\": true, got 0");
  }
  return request;
}

}  // namespace headroom::serve
