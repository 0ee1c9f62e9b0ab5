// Routes of the models and their tokenizers: GET /v1/models, /v1/models/NAME and /tokenizer_info, POST /tokenize and
// /detokenize. Routes of the server: GET /health and /metrics.
#include <mutex>
#include <optional>

#include "headroom/core/error.h"
#include "routes.h"
#include "tools/analyse/inspector/ablation.h"
#include "tools/analyse/inspector/inspector.h"
#include "tools/serve/json_fields.h"

namespace headroom::serve {
namespace {

// Returns the model whose tokenizer to use. If none is named, all models must have the same tokenizer.
const ServedModel& tokenizing_model(const Models& models, const std::string& name) {
  if (!name.empty() || models.size() == 1) {
    return find_model(models, name);
  }
  for (const auto& model : models) {
    if (model->tokenizer().name() != models.front()->tokenizer().name()) {
      refuse_field("model", "is required, the models have different tokenizers");
    }
  }
  return *models.front();
}

HttpResponse list_models(const Models& models) {
  Json list = Json::array();
  for (const auto& model : models) {
    list.push_back(model->about());
  }
  return {.body = to_json_line({{"object", "list"}, {"data", list}})};
}

// Describes the tokenizer of the model named in the query; lm_eval sends no name and gets the first model's.
HttpResponse tokenizer_info(const Models& models, const HttpRequest& call) {
  for (const auto& [parameter, value] : call.query) {
    if (parameter != "model") {
      refuse_field(parameter, "is not a parameter of this path; the only one is model");
    }
  }
  const auto name = call.query.find("model");
  const ServedModel& model = name == call.query.end() ? *models.front() : find_model(models, name->second);
  return {.body = to_json_line(model.about_tokenizer())};
}

HttpResponse tokenize(const Models& models, const HttpRequest& call) {
  JsonFields fields(call.body);
  const ServedModel& model = tokenizing_model(models, fields.text("model").value_or(""));
  const std::optional<std::string> prompt = fields.text("prompt");
  const bool add_special_tokens = fields.flag("add_special_tokens", true);
  fields.finish({"messages", "return_token_strs"});
  if (!prompt) {
    refuse_field("prompt", "is required");
  }
  const TokenIds ids = model.encode(*prompt, add_special_tokens);
  const Json document = {{"tokens", ids}, {"count", ids.size()}, {"max_model_len", model.max_length()}};
  return {.body = to_json_line(document)};
}

HttpResponse detokenize(const Models& models, const HttpRequest& call) {
  JsonFields fields(call.body);
  const ServedModel& model = tokenizing_model(models, fields.text("model").value_or(""));
  const SortedJson* tokens = fields.take("tokens");
  fields.finish();
  if (tokens == nullptr || !tokens->is_array()) {
    refuse_field("tokens", "must be a list of token ids");
  }
  TokenIds ids;
  for (const SortedJson& id : *tokens) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() > INT32_MAX) {
      refuse_field("tokens", "must be a list of token ids, found {}", describe(id));
    }
    ids.push_back(id.get<std::int64_t>());
  }
  return {.body = to_json_line({{"prompt", model.decode(ids, "tokens")}})};
}

}  // namespace

const ServedModel& find_model(const Models& models, const std::string& name) {
  std::string names;
  for (const auto& model : models) {
    if (model->name() == name) {
      return *model;
    }
    names += (names.empty() ? "" : ", ") + model->name();
  }
  if (name.empty() && models.size() == 1) {
    return *models.front();
  }
  if (name.empty()) {
    refuse_field("model", "is required, one of {}", names);
  }
  refuse(404, "model_not_found", "model", "model: there is no {}; the server has {}", name, names);
}

void add_model_routes(HttpServer& server, const Models& models) {
  const auto add = [&](const char* method, const char* path, HttpServer::Handler handler) {
    server.add({.method = method, .path = path, .handler = std::move(handler)});
  };
  add("GET", "/v1/models", [&](const HttpRequest&) { return list_models(models); });
  add("GET", "/v1/models/", [&](const HttpRequest& call) -> HttpResponse {
    return {.body = to_json_line(find_model(models, call.name).about())};
  });
  add("GET", "/tokenizer_info", [&](const HttpRequest& call) { return tokenizer_info(models, call); });
  add("POST", "/tokenize", [&](const HttpRequest& call) { return tokenize(models, call); });
  add("POST", "/detokenize", [&](const HttpRequest& call) { return detokenize(models, call); });
}

void add_health_routes(HttpServer& server, const Scheduler& scheduler, Metrics& metrics) {
  // Needs no API key, because load balancers send none with their health checks.
  server.add(
      {.method = "GET",
       .path = "/health",
       .handler = [&](const HttpRequest&) -> HttpResponse {
         const bool draining = scheduler.draining();
         return {.status = draining ? 503 : 200, .body = to_json_line({{"status", draining ? "shutting down" : "ok"}})};
       },
       .open = true});
  server.add({.method = "GET", .path = "/metrics", .handler = [&](const HttpRequest&) -> HttpResponse {
                metrics.set_connections(server.connections());
                return {.body = metrics.page(), .type = "text/plain; version=0.0.4; charset=utf-8"};
              }});
}

namespace {

constexpr const char* kInspect = "/inspect";
constexpr const char* kHtml = "text/html; charset=utf-8";
constexpr std::int64_t kMaxLivePage = 6'000'000;  // bytes of packed values; the browser loads them after every change

// Returns the page without a text. It needs no API key, because a browser sends none when it opens a page, so it must
// not reveal anything about the models. Its script sends the key.
HttpResponse empty_page(const Models& models) {
  const inspector::LivePage live{.path = kInspect, .models = {}, .model = {}, .text = {}};
  return {.body = inspector::render_inspector({"Inspector", {}, models.front()->tokenizer(), {}, live}), .type = kHtml};
}

// Throws ApiError if the client has disconnected, or if the answer has taken longer than --timeout.
void require_wanted(const HttpRequest& call, const Scheduler& scheduler, Completion::Clock::time_point arrived) {
  if (call.connection->client_gone()) {
    refuse(408, "client_gone", "", "the client has disconnected");
  }
  if (const std::optional<ApiError> late = scheduler.overdue(arrived)) {
    throw ApiError(*late);
  }
}

inspector::InspectorView view_of(const ServedModel& model, const std::vector<std::int32_t>& ids,
                                 std::vector<inspector::Ablation> off, const inspector::InspectLimits& limits) {
  nn::Context context = model.context();
  context.compute_dtype = at::kFloat;  // so that the displayed terms sum to the displayed total
  inspector::AblationObserver ablation(off, model.model().options());
  if (!off.empty()) {
    context.observer = &ablation;
  }
  const std::string name = off.empty() ? model.name() : fmt::format("{} without what is off", model.name());
  return {name, model.step(), inspector::inspect_text(model.model(), ids, context, limits)};
}

struct InspectRequest {
  std::string model, text;
  SortedJson switched_off;
};

InspectRequest parse_inspect_request(const std::string& body) {
  JsonFields fields(body);
  InspectRequest request{
      .model = fields.text("model").value_or(""), .text = fields.text("text").value_or(""), .switched_off = {}};
  const SortedJson* off = fields.take("switched_off");
  request.switched_off = off != nullptr ? *off : SortedJson::array();
  fields.finish();
  if (request.text.empty()) {
    refuse_field("text", "must be a string that is not empty");
  }
  return request;
}

HttpResponse read_text(const Models& models, const Scheduler& scheduler, std::mutex& turn, const HttpRequest& call) {
  const auto arrived = Completion::Clock::now();
  if (scheduler.draining()) {
    throw shutting_down();
  }
  const InspectRequest request = parse_inspect_request(call.body);
  const ServedModel& model = find_model(models, request.model);
  const TokenIds wide = model.encode(request.text, /*begins=*/true);
  const std::vector<std::int32_t> ids(wide.begin(), wide.end());
  // Serialised, because each request allocates a T x T tensor per head of a layer.
  const std::lock_guard<std::mutex> lock(turn);
  const auto check = [&] { require_wanted(call, scheduler, arrived); };
  check();
  try {
    const std::vector<inspector::Ablation> parts =
        inspector::parse_ablations(request.switched_off, model.model().options(), std::ssize(ids));
    inspector::InspectorPage page{"Inside " + model.name(), ids, model.tokenizer(), {}, {}};
    page.live = {.path = kInspect,
                 .models = {},
                 .model = model.name(),
                 .text = request.text,
                 .switched_off = Json(request.switched_off)};
    for (const auto& one : models) {
      page.live->models.push_back(one->name());
    }
    const inspector::InspectLimits limits{
        .bytes = parts.empty() ? kMaxLivePage : kMaxLivePage / 2, .show_progress = false, .check = check};
    page.views.push_back(view_of(model, ids, {}, limits));
    if (!parts.empty()) {
      page.views.push_back(view_of(model, ids, parts, limits));
    }
    return {.body = inspector::render_inspector(page), .type = kHtml};
  } catch (const UserError& error) {
    refuse(400, "invalid_value", "", "{}", error.what());
  }
}

}  // namespace

void add_inspect_routes(HttpServer& server, const Models& models, const Scheduler& scheduler) {
  for (const char* path : {"/", kInspect}) {
    server.add({.method = "GET",
                .path = path,
                .handler = [&](const HttpRequest&) { return empty_page(models); },
                .open = true});
  }
  const auto turn = std::make_shared<std::mutex>();
  server.add({.method = "POST", .path = kInspect, .handler = [&models, &scheduler, turn](const HttpRequest& call) {
                return read_text(models, scheduler, *turn, call);
              }});
}

}  // namespace headroom::serve
