#include "tools/serve/serve.h"

#include <fmt/ranges.h>

#include "engine.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "training/parallel/gloo_group.h"

namespace headroom::cli {

namespace {

serve::ServeOptions options_of(const Serve& command) {
  serve::ServeOptions options{
      .host = command.host, .port = static_cast<int>(command.port), .api_key_file = command.api_key_file};
  options.max_rows = command.batch.value_or(options.max_rows);
  options.queue = command.queue.value_or(options.queue);
  options.prefix_cache_tokens = command.prefix_cache.value_or(options.prefix_cache_tokens);
  options.max_length = command.max_length.value_or(options.max_length);
  options.timeout_seconds = command.timeout.value_or(options.timeout_seconds);
  if (command.max_body) {
    options.max_body = *command.max_body << 20;
  }
  return options;
}

// While a run trains, its newest checkpoint may be replaced before it has been read.
store::OpenedModel open_newest(const ModelChoice& choice, const EngineRequest& request) {
  constexpr int kTries = 3;
  for (int tried = 1;; ++tried) {
    try {
      return open_model({.choice = choice, .options = {}, .writes = true}, request);
    } catch (const UserError&) {
      if (tried == kTries) {
        throw;
      }
    }
  }
}

}  // namespace

int run(const Serve& command, const EngineRequest& request) {
  serve::names_of(command.runs);
  serve::Server server(options_of(command));  // reports an invalid address before models are loaded
  std::vector<serve::NamedModel> models;
  for (const std::string& run : command.runs) {
    const ModelChoice choice{
        .run = run, .average = 1, .decoding = {}, .device = command.device, .precision = command.precision};
    models.push_back({.run = run, .opened = open_newest(choice, request)});
  }
  catch_interrupts();
  server.run(
      std::move(models),
      [&](const std::string& url, const std::vector<std::string>& names) {
        // Printed even with --quiet: programs that start a server wait for this line.
        std::fprintf(stderr, "listening on %s\n", url.c_str());
        std::fflush(stderr);
        log_info("models: {}", fmt::join(names, ", "));
        log_info("to inspect the models, open {}/inspect", url);
        request.output.document({{"url", url}, {"models", names}});
      },
      interrupted);
  return 0;
}

}  // namespace headroom::cli
