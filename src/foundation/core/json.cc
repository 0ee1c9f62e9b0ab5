#include "headroom/core/json.h"

#include "json_parser.h"

namespace headroom {

Json parse_json(std::string_view text, std::string_view origin, std::size_t max_depth) {
  return detail::parse_json_as<Json>(text, origin, max_depth);
}

SortedJson parse_sorted_json(std::string_view text, std::string_view origin, std::size_t max_depth) {
  return detail::parse_json_as<SortedJson>(text, origin, max_depth);
}

std::string to_json_line(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace headroom
