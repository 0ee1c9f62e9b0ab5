// What the server refuses, in the form of the API that its clients know.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "headroom/core/error.h"
#include "headroom/core/json.h"

namespace headroom::serve {

// `code` is for programs ("context_length_exceeded"), what() for people; `param`: the request's field, or empty.
class ApiError : public Error {
 public:
  ApiError(int with_status, std::string with_code, std::string with_param, const std::string& message)
      : Error(message), status(with_status), code(std::move(with_code)), param(std::move(with_param)) {}

  int status;  // of HTTP
  std::string code, param;
};

// {"error": {"message": ..., "type": ..., "param": ..., "code": ...}}
Json to_json(const ApiError& error);

// An error of the server itself, of which HTTP has the status alone.
ApiError error_of_status(int status);

template <class... Args>
[[noreturn]] void refuse(int status, const char* code, const std::string& param, fmt::format_string<Args...> format,
                         Args&&... args) {
  throw ApiError(status, code, param, detail::message(format, fmt::make_format_args(args...)));
}

// A field that is not as it should be: "max_tokens: must be ...".
template <class... Args>
[[noreturn]] void refuse_field(const std::string& param, fmt::format_string<Args...> format, Args&&... args) {
  throw ApiError(400, "invalid_value", param, param + ": " + detail::message(format, fmt::make_format_args(args...)));
}

}  // namespace headroom::serve
