#include "headroom/nn/context.h"

#include <ATen/core/grad_mode.h>
#include <algorithm>

#include "headroom/core/error.h"
#include "headroom/nn/observer.h"

namespace headroom::nn {

bool matches(std::string_view pattern, std::string_view name) {
  if (pattern.empty() || pattern.front() != '*') {
    return pattern.empty()
               ? name.empty()
               : !name.empty() && name.front() == pattern.front() && matches(pattern.substr(1), name.substr(1));
  }
  const std::string_view rest = pattern.substr(1), step = name.substr(0, name.find('.'));
  for (std::size_t n = 0; n <= step.size(); ++n) {
    if (matches(rest, name.substr(n))) {
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
  at::Tensor replacement = observer->observe(full, value);
  if (!replacement.defined() || replacement.sym_sizes() != value.sym_sizes() ||
      replacement.scalar_type() != value.scalar_type() || replacement.device() != value.device()) {
    fail("observer: {}: the replacement must have the same shape, type and device", full);
  }
  return replacement;
}

void report(BufferUpdates& updates, const std::string& name, const BufferUpdate& update) {
  const auto [place, is_first] = updates.emplace(name, update);
  if (!is_first) {
    place->second.sum = place->second.sum + update.sum;
    place->second.count = place->second.count + update.count;
  }
}

void apply(const BufferUpdates& updates) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, update] : updates) {
    const at::Tensor mean = update.sum / (update.count + update.epsilon);
    update.buffer.copy_(at::where(update.count.gt(0.0), mean, update.buffer));
  }
}

}  // namespace headroom::nn
