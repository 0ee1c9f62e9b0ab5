#include "json_fields.h"

#include <algorithm>

#include "foundation/core/text/format.h"

namespace headroom::serve {

namespace {

const char* type_of(int status) {
  if (status == 429) {
    return "rate_limit_error";
  }
  return status >= 500 ? "server_error" : "invalid_request_error";
}

}  // namespace

Json to_json(const ApiError& error) {
  const auto or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  return {{"error",
           {{"message", error.what()},
            {"type", type_of(error.status)},
            {"param", or_null(error.param)},
            {"code", or_null(error.code)}}}};
}

ApiError error_of_status(int status) {
  switch (status) {
    case 404:
      return {status, "not_found", "", "this server has no such path"};
    case 413:
      return {status, "request_too_large", "", "the request is too large"};
    case 414:
      return {status, "request_too_large", "", "the path is too long"};
    default:
      return status >= 500 ? ApiError(status, "internal_error", "", "internal error; see the log of the server")
                           : ApiError(status, "bad_request", "", "the request is not valid HTTP");
  }
}

ApiError shutting_down() {
  return {503, "shutting_down", "", "the server is shutting down"};
}

namespace {

SortedJson parsed(std::string_view body) {
  try {
    return parse_sorted_json(body, "body", 8);
  } catch (const UserError& error) {
    throw ApiError(400, "invalid_json", "", error.what());
  }
}

std::unique_lock<std::mutex> lock_if_large(std::string_view body) {
  constexpr std::size_t kLarge = 256 << 10;
  static std::mutex turn;
  return body.size() > kLarge ? std::unique_lock(turn) : std::unique_lock<std::mutex>();
}

}  // namespace

std::string describe(const SortedJson& value) {
  if (value.is_object()) {
    return "an object";
  }
  if (value.is_array()) {
    return value.empty() ? "an empty list" : "a list";
  }
  constexpr std::size_t kShown = 60;
  if (value.is_string()) {
    return printable('"' + value.get_ref<const std::string&>().substr(0, kShown) + '"', kShown);
  }
  return printable(value.dump(), kShown);
}

JsonFields::JsonFields(std::string_view body) : turn_(lock_if_large(body)), object_(parsed(body)) {
  if (!object_.is_object()) {
    refuse(400, "invalid_value", "", "body: must be a JSON object, got {}", describe(object_));
  }
}

JsonFields::JsonFields(SortedJson object, std::string prefix) : prefix_(std::move(prefix)), object_(std::move(object)) {
  if (!object_.is_object()) {
    refuse_field(prefix_.substr(0, prefix_.size() - 1), "must be a JSON object, got {}", describe(object_));
  }
}

const SortedJson* JsonFields::take(const char* name) {
  known_.emplace_back(name);
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<std::int64_t> JsonFields::whole_number(const char* name, std::int64_t low, std::int64_t high) {
  const SortedJson* value = take(name);
  if (value == nullptr) {
    return std::nullopt;
  }
  const bool fits =
      value->is_number_integer() &&
      !(value->is_number_unsigned() && value->get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX));
  if (!fits || value->get<std::int64_t>() < low || value->get<std::int64_t>() > high) {
    refuse_field(path(name), "must be an integer from {} to {}, got {}", low, high, describe(*value));
  }
  return value->get<std::int64_t>();
}

std::optional<double> JsonFields::number(const char* name, double low, double high) {
  const SortedJson* value = take(name);
  if (value == nullptr) {
    return std::nullopt;
  }
  if (!value->is_number() || !(value->get<double>() >= low && value->get<double>() <= high)) {
    refuse_field(path(name), "must be a number from {} to {}, got {}", low, high, describe(*value));
  }
  return value->get<double>();
}

bool JsonFields::flag(const char* name, bool default_value) {
  const SortedJson* value = take(name);
  if (value != nullptr && !value->is_boolean()) {
    refuse_field(path(name), "must be true or false, got {}", describe(*value));
  }
  return value == nullptr ? default_value : value->get<bool>();
}

std::optional<std::string> JsonFields::text(const char* name) {
  const SortedJson* value = take(name);
  if (value != nullptr && !value->is_string()) {
    refuse_field(path(name), "must be a string, got {}", describe(*value));
  }
  return value == nullptr ? std::nullopt : std::optional(value->get<std::string>());
}

void JsonFields::finish(std::initializer_list<const char*> unsupported) const {
  for (const auto& item : object_.items()) {
    const std::string& key = item.key();
    if (item.value().is_null() || std::ranges::find(known_, key) != known_.end()) {
      continue;  // null is as if the field were not given
    }
    const std::string name = prefix_ + printable(key, 60);
    if (std::ranges::find(unsupported, key) != unsupported.end()) {
      refuse(400, "unsupported_parameter", name, "{}: not supported by this server", name);
    }
    const std::string meant = key.size() > 60 ? "" : nearest(key, known_);
    refuse(400, "unknown_parameter", name, "{}: unknown field{}", name,
           meant.empty() ? "" : "; did you mean " + meant + "?");
  }
}

}  // namespace headroom::serve
