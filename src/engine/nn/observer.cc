#include "headroom/nn/observer.h"

#include <algorithm>

#include "headroom/core/error.h"
#include "headroom/nn/context.h"

namespace headroom::nn {

bool matches(std::string_view pattern, std::string_view name) {
  if (pattern.empty() || pattern.front() != '*') {
    return pattern.empty()
               ? name.empty()
               : !name.empty() && name.front() == pattern.front() && matches(pattern.substr(1), name.substr(1));
  }
  const std::string_view rest = pattern.substr(1), step = name.substr(0, name.find('.'));
  for (std::size_t taken = 0; taken <= step.size(); ++taken) {
    if (matches(rest, name.substr(taken))) {
      return true;
    }
  }
  return false;
}

bool Recorder::wants(std::string_view name) const {
  return std::any_of(patterns_.begin(), patterns_.end(), [&](const auto& pattern) { return matches(pattern, name); });
}

at::Tensor Recorder::observe(std::string_view name, at::Tensor value) {
  values[std::string(name)] = value;
  return value;
}

const at::Tensor& Recorder::at(std::string_view name) const {
  const auto found = values.find(name);
  if (found == values.end()) {
    fail("observer: {} was not recorded", name);
  }
  return found->second;
}

bool Context::wants(std::string_view name) const {
  return observer != nullptr && observer->wants(scope + std::string(name));
}

at::Tensor Context::observe(std::string_view name, at::Tensor value) const {
  if (!wants(name)) {
    return value;
  }
  const std::string full = scope + std::string(name);
  at::Tensor used = observer->observe(full, value);
  if (!used.defined() || used.sym_sizes() != value.sym_sizes() || used.scalar_type() != value.scalar_type() ||
      used.device() != value.device()) {
    fail("observer: {}: what is used in its place must have the same shape, type and device", full);
  }
  return used;
}

}  // namespace headroom::nn
