#include "watch.h"

#include <torch/library.h>

#include <algorithm>
#include <optional>

#include "headroom/core/error.h"
#include "refusal.h"

namespace headroom::python {
namespace {

std::optional<Watch>& current_watch() {
  static thread_local std::optional<Watch> watch;
  return watch;
}

void start_watch(const std::vector<std::string>& patterns, const std::string& scope,
                 const std::vector<std::string>& names, const std::vector<at::Tensor>& given) {
  if (names.size() != given.size()) {
    fail("watch: a name must be given for each value, got {} for {}", names.size(), given.size());
  }
  Watch::Values values;
  for (std::size_t i = 0; i < names.size(); ++i) {
    values.emplace_back(names[i], given[i]);
  }
  current_watch().emplace(patterns, scope, values);
}

// Names and values. Those of decoding are copied: what it computes takes part in no derivative.
std::tuple<std::vector<std::string>, std::vector<at::Tensor>> end_watch() {
  std::vector<std::string> names;
  std::vector<at::Tensor> values;
  if (current_watch()) {
    for (const auto& [name, value] : current_watch()->shown()) {
      names.push_back(name);
      values.push_back(value.is_inference() ? value.clone() : value);
    }
  }
  current_watch().reset();
  return {names, values};
}

}  // namespace

Watch::Watch(std::vector<std::string> patterns, std::string scope, const Values& given)
    : patterns_(std::move(patterns)), scope_(std::move(scope)) {
  for (auto value = given.rbegin(); value != given.rend(); ++value) {
    given_[value->first].push_back(value->second);
  }
}

bool Watch::wants(std::string_view name) const {
  return given_.contains(name) || std::any_of(patterns_.begin(), patterns_.end(),
                                              [&](const auto& pattern) { return nn::matches(pattern, name); });
}

at::Tensor Watch::observe(std::string_view name, at::Tensor value) {
  if (const auto found = given_.find(name); found != given_.end() && !found->second.empty()) {
    value = std::move(found->second.back());
    found->second.pop_back();
  }
  shown_.emplace_back(name, value);
  return value;
}

Watch* Watch::current() {
  return current_watch() ? &*current_watch() : nullptr;
}

TORCH_LIBRARY_FRAGMENT(headroom, library) {
  library.def("start_watch", refusing(start_watch));
  library.def("end_watch", refusing(end_watch));
}

}  // namespace headroom::python
