// GET / and GET /inspect return the inspector's page. POST /inspect returns the page for a text, which the script of
// that page requests.
#include <mutex>
#include <optional>

#include "headroom/core/error.h"
#include "routes.h"
#include "tools/inspector/ablation.h"
#include "tools/inspector/inspector.h"
#include "tools/serve/json_fields.h"

namespace headroom::serve {
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
