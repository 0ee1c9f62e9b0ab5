#include "headroom/ops/choice.h"

#include <mutex>

#include "headroom/core/error.h"

namespace headroom::ops {
namespace {

std::mutex mutex;
std::map<std::string, Choices>& record() {
  static std::map<std::string, Choices> all;
  return all;
}

}  // namespace

Implementation choose(std::string_view op, Implementation wanted, const std::string& refusal,
                      const std::string& backend) {
  if (wanted == Implementation::fused && !refusal.empty()) {
    throw NoFusedError(detail::message("{}: no fused implementation here: {}", fmt::make_format_args(op, refusal)));
  }
  const bool fused = wanted != Implementation::reference && refusal.empty();
  const std::lock_guard lock(mutex);
  Choices& choices = record()[std::string(op)];
  ++(fused ? choices.fused : choices.reference);
  if (fused && !backend.empty()) {
    ++choices.backends[backend];
  }
  if (wanted == Implementation::automatic && !fused) {
    choices.refusal = refusal;
  }
  return fused ? Implementation::fused : Implementation::reference;
}

Implementation implementation_named(std::string_view name) {
  for (const auto& [implementation, its_name] : kImplementationNames) {
    if (name == its_name) {
      return implementation;
    }
  }
  user_error("implementation: must be automatic, reference or fused, got \"{}\"", name);
}

std::map<std::string, Choices> choices() {
  const std::lock_guard lock(mutex);
  return record();
}

void forget_choices() {
  const std::lock_guard lock(mutex);
  record().clear();
}

}  // namespace headroom::ops
