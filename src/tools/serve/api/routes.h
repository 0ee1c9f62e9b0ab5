// What the server answers at its addresses.
#pragma once

#include <memory>
#include <vector>

#include "tools/serve/engine/driver.h"
#include "tools/serve/engine/metrics.h"
#include "tools/serve/engine/served_model.h"
#include "tools/serve/http/http_server.h"

namespace headroom::serve {

using Models = std::vector<std::unique_ptr<ServedModel>>;

// The model of this name; without one the only model there is. Throws ApiError.
const ServedModel& find_model(const Models& models, const std::string& name);

// Each refers to what it is given for as long as the server answers.
void add_completion_route(HttpServer& server, const Models& models, Driver& driver, Metrics& metrics);
void add_tokenizer_routes(HttpServer& server, const Models& models);
void add_inspect_routes(HttpServer& server, const Models& models);
void add_status_routes(HttpServer& server, const Models& models, const Driver& driver, Metrics& metrics);

}  // namespace headroom::serve
