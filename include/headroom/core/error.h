// Exceptions of the library, and helpers that throw them with a formatted one-line message.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace headroom {

// A valid request failed (disk full, loss not finite). The command prints "headroom: <what()>" and exits with status 1.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A user error (bad option, config or file). The command exits with status 2.
class UserError : public Error {
 public:
  using Error::Error;
};

// Ctrl-C or another request to stop arrived before there was anything to save. The command exits with 128
// plus the number of the signal: 130 for Ctrl-C, 143 for SIGTERM.
class InterruptedError : public Error {
 public:
  using Error::Error;
};

// The error has already been printed, by this process or another rank of the run. The command exits with `status`.
class EndedError : public Error {
 public:
  explicit EndedError(int with_status) : Error("ended"), status(with_status) {}
  int status;
};

namespace detail {
// Like fmt::vformat(), but makes string arguments and the result printable (foundation/core/text/format.h).
std::string message(fmt::string_view format, fmt::format_args arguments);
}  // namespace detail

// Throws Error: fail("{}: cannot be written: {}", path, reason). Messages have the form `<file, key or operation>:
// <what is wrong>; <what to do>`.
template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(detail::message(format, fmt::make_format_args(args...)));
}

// Throws UserError; arguments as for fail().
template <class... Args>
[[noreturn]] void user_error(fmt::format_string<Args...> format, Args&&... args) {
  throw UserError(detail::message(format, fmt::make_format_args(args...)));
}

}  // namespace headroom
