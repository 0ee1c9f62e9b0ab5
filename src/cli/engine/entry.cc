// The door through which the program calls the engine.
#include "distributed.h"
#include "engine.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "headroom/models/compute.h"
#include "headroom/ops/choice.h"

namespace headroom::cli {

namespace {

// How often each operator took which way, and why not the fused one.
void remark_on_operators() {
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

}  // namespace headroom::cli

extern "C" int headroom_engine_run(const headroom::cli::EngineRequest& request) {
  headroom::keep_freed_memory();
  return headroom::cli::together(request, [&] {
    headroom::models::set_threads(request.threads);
    const int status =
        std::visit([&](const auto& command) { return headroom::cli::run(command, request); }, request.command);
    headroom::cli::remark_on_operators();
    return status;
  });
}

// The program looks the function up under this type.
static_assert(std::is_same_v<decltype(&headroom_engine_run), headroom::cli::EngineEntry>);
