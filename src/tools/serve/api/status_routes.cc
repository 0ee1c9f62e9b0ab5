// GET /v1/models, /health, /metrics, and who is meant by a model's name.
#include "routes.h"

namespace headroom::serve {

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
    refuse_field("model", "must name one of the models that are served: {}", names);
  }
  refuse(404, "model_not_found", "model", "model: {} is not served here; there is {}", name, names);
}

void add_status_routes(HttpServer& server, const Models& models, const Driver& driver, Metrics& metrics) {
  server.add({.method = "GET", .path = "/v1/models", .handler = [&](const Call&) -> Reply {
                Json list = Json::array();
                for (const auto& model : models) {
                  list.push_back(model->about());
                }
                return {.body = to_json_line({{"object", "list"}, {"data", list}})};
              }});
  // Without a key: who asks whether a server is well is seldom let in.
  server.add(
      {.method = "GET",
       .path = "/health",
       .handler = [&](const Call&) -> Reply {
         const bool draining = driver.draining();
         return {.status = draining ? 503 : 200, .body = to_json_line({{"status", draining ? "shutting down" : "ok"}})};
       },
       .open = true});
  server.add({.method = "GET", .path = "/metrics", .handler = [&](const Call&) -> Reply {
                metrics.set_connections(server.connections());
                return {.body = metrics.page(), .type = "text/plain; version=0.0.4; charset=utf-8"};
              }});
}

}  // namespace headroom::serve
