// The error message of an action.
#pragma once

#include <string>

#include "headroom/core/error.h"

namespace headroom {

// The message of a UserError, "error: ..." for another Error, or "no error".
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
