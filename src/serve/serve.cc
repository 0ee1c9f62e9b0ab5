#include "headroom/serve/serve.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "api_key.h"
#include "headroom/core/error.h"
#include "headroom/core/log.h"
#include "listening_socket.h"
#include "routes.h"

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
      misuse("serve: RUN: {} is given twice", run);
    }
    const std::string name = short_name(run);
    const bool alone =
        std::count_if(runs.begin(), runs.end(), [&](const std::string& other) { return short_name(other) == name; }) == 1;
    names.push_back(alone ? name : run);
  }
  return names;
}

void serve(std::vector<NamedModel> given, const ServeOptions& options,
           const std::function<void(const std::string& url, const std::vector<std::string>& names)>& ready,
           const std::function<bool()>& asked_to_stop) {
  std::optional<ApiKey> key;
  if (!options.api_key_file.empty()) {
    key.emplace(options.api_key_file);
  }
  Metrics metrics;
  const Models models = served_models(std::move(given), options.longest);
  Driver driver(models,
                {.max_rows = options.max_rows,
                 .prefix_cache_tokens = options.prefix_cache_tokens,
                 .queue = options.queue,
                 .timeout_seconds = options.timeout_seconds},
                metrics);
  HttpServer server({.limits = {.body = static_cast<std::size_t>(options.max_body)},
                     .admits = key ? [&](std::string_view given_key) { return key->admits(given_key); }
                                   : std::function<bool(std::string_view)>(),
                     .answered = [&](const std::string& path, int status) { metrics.answered(path, status); }});
  const int port = server.bind(options.host, options.port);
  add_completion_route(server, models, driver, metrics);
  add_tokenizer_routes(server, models);
  add_inspect_routes(server, models);
  add_status_routes(server, models, driver, metrics);
  if (!key && !server.on_loopback()) {
    log_warning(
        "serve: {} is reached from other machines and there is no authentication: whoever reaches it may use it "
        "(--api-key-file asks for a key)",
        options.host);
  }
  server.start();
  std::vector<std::string> names;
  for (const auto& model : models) {
    names.push_back(model->name());
  }
  ready(url_of(options.host, port), names);
  driver.run(asked_to_stop);
  server.stop();
}

}  // namespace headroom::serve
