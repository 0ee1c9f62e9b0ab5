// Reads the fields of a JSON request body, with a check of type and range for each, and refuses unknown fields by name.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/core/json.h"

namespace headroom::serve {

// Every function throws ApiError naming the field. A field that is null counts as absent, as in OpenAI's API.
class JsonFields {
 public:
  // Parses the body of a request. A parsed document takes many times the memory of its text, so only one large body is
  // parsed and read at a time: the object holds a lock.
  explicit JsonFields(std::string_view body);
  // The fields of a nested object; `prefix` ("stream_options.") precedes names in messages.
  JsonFields(SortedJson object, std::string prefix);

  const SortedJson* take(const char* name);  // nullptr if absent
  std::optional<std::int64_t> whole_number(const char* name, std::int64_t low, std::int64_t high);
  std::optional<double> number(const char* name, double low, double high);
  bool flag(const char* name, bool default_value);
  std::optional<std::string> text(const char* name);
  std::string path(const char* name) const { return prefix_ + name; }

  // Refuses the fields that have not been read; those in `unsupported` belong to the API but not to this server.
  void finish(std::initializer_list<const char*> unsupported = {}) const;

 private:
  std::unique_lock<std::mutex> turn_;
  std::string prefix_;
  SortedJson object_;
  std::vector<std::string> known_;
};

// A value in a message: `got "abc"`, `got a list`.
std::string describe(const SortedJson& value);

}  // namespace headroom::serve
