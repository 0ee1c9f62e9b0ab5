// The fields of a request's JSON object: each is asked for by name, and what nobody asked for is refused by name.
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

// Every function throws ApiError naming the field. null counts as absent, as it does in the API.
class Fields {
 public:
  // Parses the body of a request. A document takes many times the memory of its text: of large ones there is one at a
  // time.
  explicit Fields(std::string_view body);
  // A field's own fields: messages name "parent.field".
  Fields(SortedJson object, std::string parent);

  const SortedJson* take(const char* name);  // nullptr: absent
  std::optional<std::int64_t> whole_number(const char* name, std::int64_t low, std::int64_t high);
  std::optional<double> number(const char* name, double low, double high);
  bool flag(const char* name, bool otherwise);
  std::optional<std::string> text(const char* name);
  std::string path(const char* name) const { return parent_ + name; }

  // Refuses fields that are left: `unsupported` are known to the API but not to this server.
  void finish(std::initializer_list<const char*> unsupported = {}) const;

 private:
  std::unique_lock<std::mutex> alone_;
  std::string parent_;
  SortedJson object_;
  std::vector<std::string> asked_;
};

// What a value is, for messages: `got "abc"`, `got a list`.
std::string describe(const SortedJson& value);

}  // namespace headroom::serve
