// GET /tokenizer_info, POST /tokenize, POST /detokenize: what programs need that hand over token ids.
#include "fields.h"
#include "routes.h"

namespace headroom::serve {
namespace {

// Those who ask cannot always say which model they mean: where none is named, all must have one tokenizer.
const ServedModel& tokenizing_model(const Models& models, const std::string& name) {
  if (!name.empty() || models.size() == 1) {
    return find_model(models, name);
  }
  for (const auto& model : models) {
    if (model->tokenizer().name() != models.front()->tokenizer().name()) {
      refuse_field("model", "must name one of the models that are served, which have different tokenizers");
    }
  }
  return *models.front();
}

Reply tokenize(const Models& models, const Call& call) {
  Fields fields(call.body);
  const ServedModel& model = tokenizing_model(models, fields.text("model").value_or(""));
  const std::optional<std::string> prompt = fields.text("prompt");
  const bool begins = fields.flag("add_special_tokens", true);
  fields.finish({"messages", "return_token_strs"});
  if (!prompt) {
    refuse_field("prompt", "is required");
  }
  const TokenIds ids = model.encode(*prompt, begins);
  const Json document = {{"tokens", ids}, {"count", ids.size()}, {"max_model_len", model.longest()}};
  return {.body = to_json_line(document)};
}

Reply detokenize(const Models& models, const Call& call) {
  Fields fields(call.body);
  const ServedModel& model = tokenizing_model(models, fields.text("model").value_or(""));
  const SortedJson* tokens = fields.take("tokens");
  fields.finish();
  if (tokens == nullptr || !tokens->is_array()) {
    refuse_field("tokens", "must be a list of token ids");
  }
  TokenIds ids;
  for (const SortedJson& id : *tokens) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() > INT32_MAX) {
      refuse_field("tokens", "must be a list of token ids, got {} in it", describe(id));
    }
    ids.push_back(id.get<std::int64_t>());
  }
  return {.body = to_json_line({{"prompt", model.decode(ids, "tokens")}})};
}

}  // namespace

void add_tokenizer_routes(HttpServer& server, const Models& models) {
  server.add({.method = "GET", .path = "/tokenizer_info", .handler = [&](const Call& call) -> Reply {
                const auto name = call.parameters.find("model");
                const ServedModel& model = tokenizing_model(models, name == call.parameters.end() ? "" : name->second);
                return {.body = to_json_line(model.about_tokenizer())};
              }});
  server.add(
      {.method = "POST", .path = "/tokenize", .handler = [&](const Call& call) { return tokenize(models, call); }});
  server.add(
      {.method = "POST", .path = "/detokenize", .handler = [&](const Call& call) { return detokenize(models, call); }});
}

}  // namespace headroom::serve
