// The context of a call from Python: computation, observed values and errors.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headroom/core/error.h"
#include "headroom/nn/context.h"
#include "headroom/nn/observer.h"
#include "layer.h"

namespace headroom::python {

// A context with random numbers from torch's global generator, autocast's type as the compute type if autocast is
// enabled for the device, and this thread's Watch as the observer. Throws UserError for soft-E priors in training.
nn::Context context_of(const Layer& layer, at::Device device, bool training, const std::string& implementation);

// Observes and replaces the intermediate values of the next call. Operator schemas have no room for names, so a Watch
// is thread-local: Python calls start_watch(), the operator, end_watch().
class Watch : public nn::Observer {
 public:
  using Values = std::vector<std::pair<std::string, at::Tensor>>;

  // patterns: as in nn::matches(), for names that begin with `scope`. given: replacements, in the order of the call for
  // values of the same name.
  Watch(std::vector<std::string> patterns, std::string scope, const Values& given);
  bool wants(std::string_view name) const override;
  at::Tensor observe(std::string_view name, at::Tensor value) override;

  const std::string& scope() const { return scope_; }
  const Values& shown() const { return shown_; }  // in the order of the call
  static Watch* current();                        // of this thread; null: none

 private:
  std::vector<std::string> patterns_;
  std::string scope_;
  std::map<std::string, std::vector<at::Tensor>, std::less<>> given_;  // in reverse order
  Values shown_;
};

// function(), with headroom::Error as Python's ValueError.
template <class Function>
auto with_value_errors(const Function& function) {
  try {
    return function();
  } catch (const Error& error) {
    C10_THROW_ERROR(ValueError, error.what());
  }
}

// `function` as an operator of the library, with_value_errors().
template <class Result, class... Arguments>
auto throwing_value_errors(Result (*function)(Arguments...)) {
  return [function](std::decay_t<Arguments>... arguments) -> Result {
    return with_value_errors([&] { return function(std::move(arguments)...); });
  };
}

}  // namespace headroom::python
