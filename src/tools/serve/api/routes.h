// The routes of the server.
#pragma once

#include <memory>
#include <vector>

#include "tools/serve/engine/scheduler.h"
#include "tools/serve/engine/served_model.h"
#include "tools/serve/http/http_server.h"

namespace headroom::serve {

using Models = std::vector<std::unique_ptr<ServedModel>>;

// Returns the model of this name. An empty name means the only model. Throws ApiError if the name is unknown, or empty
// with several models.
const ServedModel& find_model(const Models& models, const std::string& name);

// All arguments must outlive the server's responses.
void add_completion_routes(HttpServer& server, const Models& models, Scheduler& scheduler, Metrics& metrics);
void add_model_routes(HttpServer& server, const Models& models);
void add_inspect_routes(HttpServer& server, const Models& models, const Scheduler& scheduler);
void add_health_routes(HttpServer& server, const Scheduler& scheduler, Metrics& metrics);

}  // namespace headroom::serve
