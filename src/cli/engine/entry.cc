// The engine's entry point, and helpers shared by its commands.
#include "engine.h"

#include <filesystem>
#include <fstream>

#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/text/message.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/models/compute.h"
#include "headroom/ops/choice.h"

namespace headroom::cli {

namespace {

// Logs how often each operator ran fused, and why it did not.
void log_operator_choices() {
  for (const auto& [name, chosen] : ops::implementation_counts()) {
    log_debug("{}: fused {} times, reference {} times{}", name, chosen.fused, chosen.reference,
              chosen.refusal.empty() ? "" : ": " + chosen.refusal);
  }
}

}  // namespace

std::vector<std::string> overrides(const std::vector<std::string>& set, const EngineRequest& request) {
  std::vector<std::string> all = set;
  if (request.threads > 0) {
    all.push_back(fmt::format("train.threads={}", request.threads));
  }
  return all;
}

void require_replaceable_file(const std::string& path, std::string_view option, std::string_view begins,
                              std::string_view difference) {
  require_writable(path, option);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    return;
  }
  std::string found(begins.size(), '\0');
  std::ifstream(path).read(found.data(), static_cast<std::streamsize>(found.size()));
  if (found != begins) {
    user_error("{}: {} exists and {}; choose another name", option, printable(path), difference);
  }
}

}  // namespace headroom::cli

extern "C" int headroom_engine_run(const headroom::cli::EngineRequest& request) {
  headroom::keep_freed_memory();
  return headroom::cli::run_distributed(request, [&] {
    headroom::models::set_threads(request.threads);
    const int status =
        std::visit([&](const auto& command) { return headroom::cli::run(command, request); }, request.command);
    headroom::cli::log_operator_choices();
    return status;
  });
}

// The program casts the symbol to this type.
static_assert(std::is_same_v<decltype(&headroom_engine_run), headroom::cli::EngineEntry>);
