// GET and POST /inspect: the inspector's page, which asks for the texts that are typed into it.
#include <mutex>

#include "fields.h"
#include "headroom/core/error.h"
#include "routes.h"
#include "tools/inspector/ablation.h"
#include "tools/inspector/inspector.h"

namespace headroom::serve {
namespace {

constexpr const char* kInspect = "/inspect";
constexpr const char* kHtml = "text/html; charset=utf-8";
constexpr std::int64_t kMostOfALivePage = 6'000'000;  // bytes of packed numbers: it is read again after every change

// Without a text, which the page asks for, and without a word of what is served: it is open to all, since a browser
// sends no key of its own. Its script does.
Reply empty_page(const Models& models) {
  const inspector::LivePage live{.path = kInspect, .models = {}, .model = {}, .text = {}};
  return {.body = inspector::render_inspector({"Inspector", {}, models.front()->tokenizer(), {}, live}), .type = kHtml};
}

inspector::InspectorView look_into(const ServedModel& model, const std::vector<std::int32_t>& ids,
                                   std::vector<inspector::Ablation> off, std::int64_t bytes) {
  nn::Context context = model.context();
  context.compute_dtype = at::kFloat;  // sums shall come out
  inspector::AblationObserver ablation(off, model.model().options().attention);
  if (!off.empty()) {
    context.observer = &ablation;
  }
  const inspector::InspectLimits limits{.bytes = bytes, .show_progress = false};
  const std::string name = off.empty() ? model.name() : fmt::format("{} without what is off", model.name());
  return {name, model.step(), inspector::inspect_text(model.model(), ids, context, limits)};
}

struct InspectRequest {
  std::string model, text;
  SortedJson switched_off;
};

InspectRequest parse_inspect_request(const std::string& body) {
  Fields fields(body);
  InspectRequest request{
      .model = fields.text("model").value_or(""), .text = fields.text("text").value_or(""), .switched_off = {}};
  const SortedJson* off = fields.take("switched_off");
  request.switched_off = off != nullptr ? *off : SortedJson::array();
  fields.finish();
  if (request.text.empty()) {
    refuse_field("text", "is required, and must not be empty");
  }
  return request;
}

Reply read_text(const Models& models, std::mutex& alone, const Call& call) {
  const InspectRequest request = parse_inspect_request(call.body);
  const ServedModel& model = find_model(models, request.model);
  const TokenIds wide = model.encode(request.text, /*begins=*/true);
  const std::vector<std::int32_t> ids(wide.begin(), wide.end());
  const std::lock_guard<std::mutex> one_at_a_time(alone);  // each takes a layer's values of all pairs
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
    const std::int64_t bytes = parts.empty() ? kMostOfALivePage : kMostOfALivePage / 2;
    page.views.push_back(look_into(model, ids, {}, bytes));
    if (!parts.empty()) {
      page.views.push_back(look_into(model, ids, parts, bytes));
    }
    return {.body = inspector::render_inspector(page), .type = kHtml};
  } catch (const UserError& error) {
    refuse(400, "invalid_value", "", "{}", error.what());
  }
}

}  // namespace

void add_inspect_routes(HttpServer& server, const Models& models) {
  server.add(
      {.method = "GET", .path = kInspect, .handler = [&](const Call&) { return empty_page(models); }, .open = true});
  const auto alone = std::make_shared<std::mutex>();
  server.add({.method = "POST", .path = kInspect, .handler = [&models, alone](const Call& call) {
                return read_text(models, *alone, call);
              }});
}

}  // namespace headroom::serve
