// A model under the name that clients know it by, and what of a request only it can tell.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/models/language_model.h"
#include "headroom/store/huggingface.h"
#include "headroom/store/open_model.h"
#include "tools/serve/api/completion_request.h"
#include "tools/serve/api/token_text.h"

namespace headroom::serve {

class ServedModel {
 public:
  // `longest`: tokens of a prompt and its answer together; 0: what the model's context holds. Throws UserError for a
  // model that is no language model or has another tokenizer.
  ServedModel(std::string name, store::OpenedModel opened, std::int64_t longest);

  const std::string& name() const { return name_; }
  const models::LanguageModel& model() const { return model_; }
  const nn::Context& context() const { return opened_.context; }
  const tokenizers::Tokenizer& tokenizer() const { return *opened_.checkpoint.tokenizer; }
  const TokenText& token_text() const { return token_text_; }
  std::int64_t longest() const { return longest_; }
  // The token that ends an answer; -1: there is none, as in models that were trained here.
  std::int64_t end_id() const { return end_id_; }
  std::int64_t step() const { return opened_.checkpoint.step; }
  bool routes() const { return model_.options().routes(); }  // its tokens choose experts or heads

  // The ids of a text: those of the tokenizer, or of a special token that the whole text names. `begins`: with what is
  // in front of the texts that this model knows. Throws ApiError.
  TokenIds encode(const std::string& text, bool begins) const;
  // The text of ids, which are checked. Throws ApiError naming `field`.
  std::string decode(const TokenIds& ids, const std::string& field) const;
  // The ids of a prompt, at least one, checked against the vocabulary and, with the answer, against `longest`.
  TokenIds prompt_ids(const Prompt& prompt, std::int64_t max_tokens, const std::string& field) const;

  Json about() const;            // of GET /v1/models
  Json about_tokenizer() const;  // of GET /tokenizer_info

 private:
  void check_ids(const TokenIds& ids, const std::string& field) const;

  std::string name_;
  store::OpenedModel opened_;
  const models::LanguageModel& model_;
  bool imported_;
  store::SpecialTokens special_;
  TokenText token_text_;
  std::int64_t longest_, end_id_, opened_at_;
};

}  // namespace headroom::serve
