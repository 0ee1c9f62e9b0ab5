// A model that is served: its name, its tokenizer, and the checks of a request that depend on them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/models/language_model.h"
#include "headroom/store/open_model.h"
#include "headroom/store/special_tokens.h"
#include "headroom/tokenizers/tokenizer.h"
#include "tools/serve/api/completion_request.h"

namespace headroom::serve {

// How each token is written in lists of log-probabilities; no two ids are written alike: its text inside a text, with
// the blank in front; "bytes:\xe2\x82" if that is no valid UTF-8; the name of a special token; "token:17" if it has no
// text or another id has the same.
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
  // `max_length`: tokens of a prompt and its answer together; 0: the model's context. Throws UserError if the model is
  // no language model or its vocabulary is not the tokenizer's.
  ServedModel(std::string name, store::OpenedModel opened, std::int64_t max_length);

  const std::string& name() const { return name_; }
  const models::LanguageModel& model() const { return model_; }
  const nn::Context& context() const { return opened_.context; }
  const tokenizers::Tokenizer& tokenizer() const { return *opened_.checkpoint.tokenizer; }
  const TokenText& token_text() const { return token_text_; }
  std::int64_t max_length() const { return max_length_; }
  // The token that ends an answer; -1 for models trained by Headroom, which have none.
  std::int64_t end_id() const { return end_id_; }
  std::int64_t step() const { return opened_.checkpoint.step; }
  bool routes() const { return model_.options().routes(); }  // has routed experts or heads

  // The ids of a text: those of the tokenizer, or the one of a special token if the text is exactly its name.
  // `add_special_tokens`: preceded by the token that this model's texts begin with. Throws ApiError.
  TokenIds encode(const std::string& text, bool add_special_tokens) const;
  // The text of ids, which are checked. Throws ApiError naming `field`.
  std::string decode(const TokenIds& ids, const std::string& field) const;
  // The ids of a prompt, at least one. Throws ApiError naming `field` for ids outside the vocabulary, and if the prompt
  // and `max_tokens` exceed max_length().
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
  std::int64_t max_length_, end_id_, opened_at_;
};

}  // namespace headroom::serve
