// The context of a call from Python: settings, observed values and errors.
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

// Returns a context with random numbers from torch's global generator, autocast's type as the compute type if autocast
// is enabled for the device, and this thread's Watch as the observer. Throws UserError for soft-E priors in training.
nn::Context context_of(const Layer& layer, at::Device device, bool training, const std::string& implementation);

// Observes and replaces the intermediate values of the next call. A Watch is thread-local because operator schemas
// cannot carry names: Python calls start_watch(), the operator, end_watch().
class Watch : public nn::Observer {
 public:
  using Values = std::vector<std::pair<std::string, at::Tensor>>;

  // `patterns`: as in nn::matches(), for names that start with `scope`. `given`: replacements; several for one name are
  // used in the order of the call.
  Watch(std::vector<std::string> patterns, std::string scope, const Values& given);
  bool wants(std::string_view name) const override;
  at::Tensor observe(std::string_view name, at::Tensor value) override;

  const std::string& scope() const { return scope_; }
  const Values& shown() const { return shown_; }  // in call order
  static Watch* current();                        // of this thread; null if there is none

 private:
  std::vector<std::string> patterns_;
  std::string scope_;
  std::map<std::string, std::vector<at::Tensor>, std::less<>> given_;  // in reverse order
  Values shown_;
};

// Calls function() and converts headroom::Error to Python's ValueError.
template <class Function>
auto with_value_errors(const Function& function) {
  try {
    return function();
  } catch (const Error& error) {
    C10_THROW_ERROR(ValueError, error.what());
  }
}

// Registers `function` as an operator of the library, wrapped in with_value_errors().
template <class Result, class... Arguments>
auto throwing_value_errors(Result (*function)(Arguments...)) {
  return [function](std::decay_t<Arguments>... arguments) -> Result {
    return with_value_errors([&] { return function(std::move(arguments)...); });
  };
}

}  // namespace headroom::python
