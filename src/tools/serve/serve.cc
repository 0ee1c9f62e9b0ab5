#include "serve.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <utility>

#include "foundation/core/machine/log.h"
#include "foundation/core/text/utf8.h"
#include "foundation/core/transformed.h"
#include "headroom/core/error.h"
#include "tools/serve/api/routes.h"
#include "tools/serve/http/access.h"

namespace headroom::serve {
namespace {

// Returns the last `parts` components of a path, without ".safetensors".
std::string short_name(const std::string& run, std::int64_t parts) {
  std::filesystem::path path = std::filesystem::absolute(run).lexically_normal();
  if (!path.has_filename()) {
    path = path.parent_path();
  }
  if (path.extension() == ".safetensors") {
    path.replace_extension();
  }
  std::filesystem::path name;
  const std::filesystem::path relative = path.relative_path();
  auto part = relative.begin();
  std::advance(part, std::max<std::int64_t>(std::distance(relative.begin(), relative.end()) - parts, 0));
  for (; part != relative.end(); ++part) {
    name /= *part;
  }
  return repair_utf8(name.empty() ? run : name.string());
}

Models served_models(std::vector<NamedModel> given, std::int64_t max_length) {
  std::vector<std::string> runs = transformed(given, &NamedModel::run);
  const std::vector<std::string> names = names_of(runs);
  Models models;
  for (std::size_t i = 0; i < given.size(); ++i) {
    models.push_back(std::make_unique<ServedModel>(names[i], std::move(given[i].opened), max_length));
  }
  return models;
}

}  // namespace

std::vector<std::string> names_of(const std::vector<std::string>& runs) {
  constexpr std::int64_t kMaxParts = 64;
  std::vector<std::string> names;
  for (const std::string& run : runs) {
    if (std::ranges::count(runs, run) > 1) {
      user_error("serve: RUN: {} is given twice", run);
    }
    std::string name;
    std::ptrdiff_t alike = 0;
    for (std::int64_t parts = 1; parts == 1 || (alike > 1 && parts <= kMaxParts); ++parts) {
      name = short_name(run, parts);
      alike = std::ranges::count_if(runs, [&](const std::string& other) { return short_name(other, parts) == name; });
    }
    names.push_back(alike > 1 ? run : name);  // one file given by two paths
  }
  return names;
}

struct Server::Parts {
  explicit Parts(ServeOptions given)
      : options(std::move(given)),
        key(options.api_key_file.empty() ? std::nullopt : std::optional<ApiKey>(options.api_key_file)),
        http({.limits = {.body = static_cast<std::size_t>(options.max_body_mib) << 20},
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

void Server::run(std::vector<NamedModel> given, const Ready& ready, const std::function<bool()>& stop_requested) {
  HttpServer& http = parts_->http;
  const ServeOptions& options = parts_->options;
  const Models models = served_models(std::move(given), options.max_length);
  Scheduler scheduler(models, options, parts_->metrics);
  add_completion_routes(http, models, scheduler, parts_->metrics);
  add_model_routes(http, models);
  add_inspect_routes(http, models, scheduler);
  add_health_routes(http, scheduler, parts_->metrics);
  if (!parts_->key && !http.on_loopback()) {
    log_warning(
        "serve: --host {}: other machines can use the server, there is no authentication; require a key with "
        "--api-key-file",
        options.host);
  }
  std::vector<std::string> names = transformed(models, [&](const auto& model) { return model->name(); });
  // Connections must end before the scheduler and the models are destroyed, even if this function throws.
  const std::shared_ptr<void> end(nullptr, [&](void*) {
    scheduler.end();
    http.stop();
  });
  http.start();
  ready(url_of(options.host, parts_->port), names);
  scheduler.run(stop_requested);
}

}  // namespace headroom::serve
