// The error message of an action.
#pragma once

#include <string>
#include <string_view>

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

// What a message is about, without its sentence: "x:2: model.norm: must be ..." gives "x:2: model.norm", and "no error"
// itself.
inline std::string subject_of(const std::string& message) {
  const std::size_t origin = message.find(": ");
  const std::size_t key = origin == std::string::npos ? origin : message.find(": ", origin + 1);
  return message.substr(0, key);
}

// The name that a message proposes instead of a wrong one; empty if it proposes none.
inline std::string suggestion_of(const std::string& message) {
  constexpr std::string_view kQuestion = "did you mean ";
  const std::size_t at = message.find(kQuestion);
  return at == std::string::npos ? ""
                                 : message.substr(at + kQuestion.size(), message.size() - at - kQuestion.size() - 1);
}

}  // namespace headroom
