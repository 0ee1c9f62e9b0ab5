#include "context.h"

#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>

#include "headroom/config/part_options.h"
#include "headroom/ops/choice.h"

namespace headroom::python {

namespace {

bool trains_by_soft_e(const config::ModelOptions& model) {
  for (const auto& [layer, count] : model.kinds_of_layers(std::max(model.n_layers, model.decoder_layers()))) {
    if (layer.attention.of<config::MixtureOptions>().prior_update == config::PriorUpdate::soft_e) {
      return true;
    }
  }
  return false;
}

}  // namespace

nn::Context context_of(const Layer& layer, at::Device device, bool training, const std::string& implementation) {
  if (training && trains_by_soft_e(layer.model)) {
    user_error(
        "model.attention.prior_update: soft_e can be trained only with the command headroom, got training=True in "
        "Python");
  }
  nn::Context context;
  context.training = training;
  context.from_generator = training;
  context.implementation = ops::implementation_named(implementation);
  if (at::autocast::is_autocast_available(device.type()) && at::autocast::is_autocast_enabled(device.type())) {
    context.compute_dtype = at::autocast::get_autocast_dtype(device.type());
  }
  if (Watch* watch = Watch::current(); watch != nullptr) {
    context.observer = watch;
    context.scope = watch->scope();
  }
  return context;
}

namespace {

std::optional<Watch>& current_watch() {
  static thread_local std::optional<Watch> watch;
  return watch;
}

void start_watch(const std::vector<std::string>& patterns, const std::string& scope,
                 const std::vector<std::string>& names, const std::vector<at::Tensor>& given) {
  if (names.size() != given.size()) {
    fail("watch: each value needs a name, got {} names for {} values", names.size(), given.size());
  }
  Watch::Values values;
  for (std::size_t i = 0; i < names.size(); ++i) {
    values.emplace_back(names[i], given[i]);
  }
  current_watch().emplace(patterns, scope, values);
}

// Returns the names and values observed in the call. Inference tensors are copied, so that autograd accepts them.
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
  return given_.contains(name) ||
         std::ranges::any_of(patterns_, [&](const auto& pattern) { return nn::matches(pattern, name); });
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
  library.def("start_watch", throwing_value_errors(start_watch));
  library.def("end_watch", throwing_value_errors(end_watch));
}

}  // namespace headroom::python
