// The two ways an operation can fail, and how to say so in one sentence.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace headroom {

// Something went wrong although what the user asked for was sensible (disk full, loss not finite).
// The command line prints "headroom: <what()>" and exits with status 1.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What the user asked for or handed in is not usable (bad option, bad config, bad file): exit status 2.
class UserError : public Error {
 public:
  using Error::Error;
};

// Ctrl-C or another request to stop came before there was anything to keep: exit status 130.
class InterruptedError : public Error {
 public:
  using Error::Error;
};

// What there was to say has been said, by this process or by another one of the same run: end with this status.
class EndedError : public Error {
 public:
  explicit EndedError(int with_status) : Error("ended"), status(with_status) {}
  int status;
};

namespace detail {
// fmt::vformat with every text among the arguments, and the whole, made printable (core/printable.h).
std::string message(fmt::string_view format, fmt::format_args arguments);
}  // namespace detail

// fail("{}: cannot be written: {}", path, reason). Messages read `<operation or file>: <what>: <why>`.
template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(detail::message(format, fmt::make_format_args(args...)));
}

template <class... Args>
[[noreturn]] void user_error(fmt::format_string<Args...> format, Args&&... args) {
  throw UserError(detail::message(format, fmt::make_format_args(args...)));
}

}  // namespace headroom
