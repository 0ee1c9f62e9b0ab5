#include "serve.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "foundation/core/machine/log.h"
#include "headroom/core/error.h"
#include "tools/serve/api/routes.h"
#include "tools/serve/http/api_key.h"
#include "tools/serve/http/listening_socket.h"

namespace headroom::serve {
namespace {

std::string short_name(const std::string& run) {
  std::filesystem::path path = std::filesystem::path(run).lexically_normal();
  if (!path.has_filename()) {
    path = path.parent_path();
  }
  std::string name = path.extension() == ".safetensors" ? path.stem().string() : path.filename().string();
  if (name.empty() || name == "." || name == "..") {
    name = std::filesystem::absolute(path).lexically_normal().parent_path().filename().string();
  }
  return name.empty() ? run : name;
}

Models served_models(std::vector<NamedModel> given, std::int64_t longest) {
  std::vector<std::string> runs;
  for (const NamedModel& model : given) {
    runs.push_back(model.run);
  }
  const std::vector<std::string> names = names_of(runs);
  Models models;
  for (std::size_t i = 0; i < given.size(); ++i) {
    models.push_back(std::make_unique<ServedModel>(names[i], std::move(given[i].opened), longest));
  }
  return models;
}

}  // namespace

std::vector<std::string> names_of(const std::vector<std::string>& runs) {
  std::vector<std::string> names;
  for (const std::string& run : runs) {
    if (std::count(runs.begin(), runs.end(), run) > 1) {
      user_error("serve: RUN: {} is given twice", run);
    }
    const std::string name = short_name(run);
    const bool alone = std::count_if(runs.begin(), runs.end(),
                                     [&](const std::string& other) { return short_name(other) == name; }) == 1;
    names.push_back(alone ? name : run);
  }
  return names;
}

struct Server::Parts {
  explicit Parts(ServeOptions given)
      : options(std::move(given)),
        key(options.api_key_file.empty() ? std::nullopt : std::optional<ApiKey>(options.api_key_file)),
        http({.limits = {.body = static_cast<std::size_t>(options.max_body)},
              .admits = key ? [this](std::string_view authorization) { return key->admits(authorization); }
                            : std::function<bool(std::string_view)>(),
              .answered = [this](const std::string& path, int status) { metrics.answered(path, status); }}),
        port(http.bind(options.host, options.port)) {}

  ServeOptions options;
  std::optional<ApiKey> key;
  Metrics metrics;
  HttpServer http;
  int port;
};

Server::Server(ServeOptions options) : parts_(std::make_unique<Parts>(std::move(options))) {}

Server::~Server() = default;

void Server::run(std::vector<NamedModel> given, const Ready& ready, const std::function<bool()>& asked_to_stop) {
  HttpServer& http = parts_->http;
  const ServeOptions& options = parts_->options;
  const Models models = served_models(std::move(given), options.longest);
  Driver driver(models,
                {.max_rows = options.max_rows,
                 .prefix_cache_tokens = options.prefix_cache_tokens,
                 .queue = options.queue,
                 .timeout_seconds = options.timeout_seconds},
                parts_->metrics);
  add_completion_route(http, models, driver, parts_->metrics);
  add_tokenizer_routes(http, models);
  add_inspect_routes(http, models);
  add_status_routes(http, models, driver, parts_->metrics);
  if (!parts_->key && !http.on_loopback()) {
    log_warning(
        "serve: {} is reached from other machines and there is no authentication: whoever reaches it may use it "
        "(--api-key-file asks for a key)",
        options.host);
  }
  std::vector<std::string> names;
  for (const auto& model : models) {
    names.push_back(model->name());
  }
  // However this ends, no connection waits for the driver, or looks at a model, when they are gone.
  const std::shared_ptr<void> end(nullptr, [&](void*) {
    driver.end();
    http.stop();
  });
  http.start();
  ready(url_of(options.host, parts_->port), names);
  driver.run(asked_to_stop);
}

}  // namespace headroom::serve
