// A served model: its name, its tokenizer, and the request checks that depend on them.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "headroom/models/language_model.h"
#include "headroom/store/huggingface.h"
#include "headroom/store/open_model.h"
#include "headroom/tokenizers/tokenizer.h"

namespace headroom::serve {

using TokenIds = std::vector<std::int64_t>;
using Prompt = std::variant<std::string, TokenIds>;

struct CompletionRequest {
  std::string model;  // empty if not given
  std::vector<Prompt> prompts;
  std::int64_t max_tokens = 16;  // per answer
  double temperature = 1.0;
  double top_p = 1.0;
  std::int64_t top_k = 0;  // 0: all
  std::optional<std::int64_t> seed;
  std::int64_t n = 1;  // answers per prompt; answer i (from 0) uses seed + i
  std::vector<std::string> stop;
  bool echo = false;           // each answer begins with the prompt
  std::int64_t logprobs = -1;  // report the N likeliest tokens at each position; -1: no log-probabilities
  bool stream = false;
  bool include_usage = false;  // a stream ends with an event that has the token counts
  bool routing = false;        // report the experts that each token was routed to

  bool details() const { return logprobs >= 0 || routing; }  // whether details are reported for each token
};

// Parses the body and checks the type and range of each field. Checks that depend on a model (its name, vocabulary,
// context) come later. Throws ApiError naming the field.
CompletionRequest parse_completion_request(std::string_view body);

// Formats each token for lists of log-probabilities; the result is unique per id. It is the token's text as it appears
// inside a sentence, with the leading blank; "bytes:\xe2\x82" if that is not valid UTF-8; the name of a special token;
// or "token:17" if it has no text or shares it with another id.
class TokenText {
 public:
  TokenText(const tokenizers::Tokenizer& tokenizer, const store::SpecialTokens& special);

  const std::string& of(std::int64_t id) const { return texts_[static_cast<std::size_t>(id)]; }
  std::int64_t size() const { return std::ssize(texts_); }

 private:
  std::vector<std::string> texts_;
};

class ServedModel {
 public:
  // `max_length`: maximum number of tokens of a prompt and its answer together; 0: the model's context. Throws
  // UserError if the model is not a language model or its vocabulary differs from the tokenizer's.
  ServedModel(std::string name, store::OpenedModel opened, std::int64_t max_length);

  const std::string& name() const { return name_; }
  const models::LanguageModel& model() const { return model_; }
  const nn::Context& context() const { return opened_.context; }
  const tokenizers::Tokenizer& tokenizer() const { return *opened_.checkpoint.tokenizer; }
  const TokenText& token_text() const { return token_text_; }
  std::int64_t max_length() const { return max_length_; }
  // The tokens that end an answer; none for models trained by Headroom, which have no such token.
  const std::set<std::int32_t>& ends() const { return ends_; }
  std::int64_t step() const { return opened_.checkpoint.step; }
  bool routes() const { return model_.options().routes(); }  // whether it has routed experts or heads

  // Encodes a text. A text that is exactly the name of a special token becomes that token. `add_special_tokens`:
  // prepend the token that starts this model's texts. Throws ApiError.
  TokenIds encode(const std::string& text, bool add_special_tokens) const;
  // Checks and decodes ids. Throws ApiError naming `field`.
  std::string decode(const TokenIds& ids, const std::string& field) const;
  // Returns the ids of a prompt, at least one. Throws ApiError naming `field` for ids outside the vocabulary, and if
  // the prompt and `max_tokens` exceed max_length().
  TokenIds prompt_ids(const Prompt& prompt, std::int64_t max_tokens, const std::string& field) const;

  Json about() const;            // for GET /v1/models
  Json about_tokenizer() const;  // for GET /tokenizer_info

 private:
  void check_ids(const TokenIds& ids, const std::string& field) const;

  std::string name_;
  store::OpenedModel opened_;
  const models::LanguageModel& model_;
  bool imported_;
  store::SpecialTokens special_;
  TokenText token_text_;
  std::int64_t max_length_;
  std::set<std::int32_t> ends_;
  std::int64_t opened_at_;
};

}  // namespace headroom::serve
