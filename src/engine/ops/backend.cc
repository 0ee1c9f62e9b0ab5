#include "backend.h"

#include <fmt/format.h>

#include <mutex>

#include "headroom/core/error.h"

namespace headroom::ops {
namespace {

std::vector<BackendList*>& all_lists() {
  static std::vector<BackendList*> all;
  return all;
}

}  // namespace

BackendList::BackendList(std::string op) : op_(std::move(op)) {
  all_lists().push_back(this);
}

BackendList::~BackendList() {
  std::erase(all_lists(), this);
}

void BackendList::check_new(const BackendTraits& added) const {
  for (const BackendTraits& known : traits()) {
    if (known.device == added.device && known.name == added.name) {
      fail("{}: two backends for {} are named {}", op_, at::DeviceTypeName(added.device, /*lower_case=*/true),
           added.name);
    }
  }
}

std::vector<BackendList*> backend_lists() {
  std::vector<BackendList*> all = all_lists();
  std::ranges::sort(all, [](const BackendList* a, const BackendList* b) { return a->op() < b->op(); });
  return all;
}

std::string refusal_of(at::ScalarType type) {
  return fmt::format("{} is not supported", type == at::kDouble ? "float64" : at::toString(type));
}

namespace {

std::mutex mutex;
std::map<std::string, ImplementationCounts>& record() {
  static std::map<std::string, ImplementationCounts> all;
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
  ImplementationCounts& choices = record()[std::string(op)];
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

std::map<std::string, ImplementationCounts> implementation_counts() {
  const std::lock_guard lock(mutex);
  return record();
}

void reset_implementation_counts() {
  const std::lock_guard lock(mutex);
  record().clear();
}

}  // namespace headroom::ops
