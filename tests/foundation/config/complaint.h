#pragma once

#include <string>
#include <string_view>

#include "headroom/core/error.h"

namespace headroom {

// Returns the message of a UserError, "error: ..." for another Error, or "no error".
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

// Returns the message without its sentence: "x:2: model.norm" for "x:2: model.norm: must be ...". "no error" stays as
// it is.
inline std::string subject_of(const std::string& message) {
  const std::size_t origin = message.find(": ");
  const std::size_t key = origin == std::string::npos ? origin : message.find(": ", origin + 1);
  return message.substr(0, key);
}

// Returns the name that a message suggests, or "" if it suggests none.
inline std::string suggestion_of(const std::string& message) {
  constexpr std::string_view kQuestion = "did you mean ";
  const std::size_t at = message.find(kQuestion);
  return at == std::string::npos ? ""
                                 : message.substr(at + kQuestion.size(), message.size() - at - kQuestion.size() - 1);
}

}  // namespace headroom
