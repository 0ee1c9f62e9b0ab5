// What an action complains about.
#pragma once

#include <string>

#include "headroom/core/error.h"

namespace headroom {

// "no error", the sentence of a UserError, or "error: ..." for any other.
template <class Action>
std::string complaint_of(Action action) {
  try {
    action();
  } catch (const UserError& error) {
    return error.what();
  } catch (const Error& error) {
    return std::string("error: ") + error.what();
  }
  return "no error";
}

}  // namespace headroom
