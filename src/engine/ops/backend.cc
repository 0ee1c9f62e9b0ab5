#include "backend.h"

#include <fmt/format.h>

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
  std::sort(all.begin(), all.end(), [](const BackendList* a, const BackendList* b) { return a->op() < b->op(); });
  return all;
}

std::string refusal_of(at::ScalarType type) {
  return fmt::format("{} has the reference only", type == at::kDouble ? "float64" : at::toString(type));
}

}  // namespace headroom::ops
