// What the engine refuses, as Python shall see it.
#pragma once

#include <ATen/ATen.h>

#include "headroom/core/error.h"

namespace headroom::python {

// function(), with a ValueError of one sentence for what it refuses.
template <class Function>
auto with_value_errors(const Function& function) {
  try {
    return function();
  } catch (const Error& refusal) {
    C10_THROW_ERROR(ValueError, refusal.what());
  }
}

// A function as an operator of the library, which refuses so.
template <class Result, class... Arguments>
auto refusing(Result (*function)(Arguments...)) {
  return [function](std::decay_t<Arguments>... arguments) -> Result {
    return with_value_errors([&] { return function(std::move(arguments)...); });
  };
}

}  // namespace headroom::python
