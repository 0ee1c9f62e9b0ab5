// Reads the fields of a JSON request body: checks the type and range of each, and rejects unknown fields by name.
// Errors have the form of OpenAI's API.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <initializer_list>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

ApiError shutting_down();

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

// Every function throws ApiError naming the field. A null field counts as missing, as in OpenAI's API.
class JsonFields {
 public:
  // Parses the body of a request. A parsed document takes many times the memory of its text, so the object holds a lock
  // that allows only one large body at a time.
  explicit JsonFields(std::string_view body);
  // Reads the fields of a nested object; `prefix` ("stream_options.") precedes names in messages.
  JsonFields(SortedJson object, std::string prefix);

  const SortedJson* take(const char* name);  // nullptr if absent
  std::optional<std::int64_t> whole_number(const char* name, std::int64_t low, std::int64_t high);
  std::optional<double> number(const char* name, double low, double high);
  bool flag(const char* name, bool default_value);
  std::optional<std::string> text(const char* name);
  std::string path(const char* name) const { return prefix_ + name; }

  // Rejects the fields that have not been read. Those in `unsupported` belong to the API but are not supported here.
  void finish(std::initializer_list<const char*> unsupported = {}) const;

 private:
  std::unique_lock<std::mutex> turn_;
  std::string prefix_;
  SortedJson object_;
  std::vector<std::string> known_;
};

// Describes a value for a message: `got "abc"`, `got a list`.
std::string describe(const SortedJson& value);

}  // namespace headroom::serve
