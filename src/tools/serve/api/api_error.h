// Errors in the form of OpenAI's API.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "headroom/core/error.h"
#include "headroom/core/json.h"

namespace headroom::serve {

// what() is the message for people; `code` is the machine-readable code ("context_length_exceeded"); `param` is the
// invalid field of the request, or empty.
class ApiError : public Error {
 public:
  ApiError(int with_status, std::string with_code, std::string with_param, const std::string& message)
      : Error(message), status(with_status), code(std::move(with_code)), param(std::move(with_param)) {}

  int status;  // HTTP status
  std::string code, param;
};

// {"error": {"message": ..., "type": ..., "param": ..., "code": ...}}
Json to_json(const ApiError& error);

// Returns the error for an HTTP status, with a generic message.
ApiError error_of_status(int status);

// Throws an ApiError with a formatted message.
template <class... Args>
[[noreturn]] void refuse(int status, const char* code, const std::string& param, fmt::format_string<Args...> format,
                         Args&&... args) {
  throw ApiError(status, code, param, detail::message(format, fmt::make_format_args(args...)));
}

// Throws status 400 for an invalid field: "max_tokens: must be ...".
template <class... Args>
[[noreturn]] void refuse_field(const std::string& param, fmt::format_string<Args...> format, Args&&... args) {
  throw ApiError(400, "invalid_value", param, param + ": " + detail::message(format, fmt::make_format_args(args...)));
}

}  // namespace headroom::serve
