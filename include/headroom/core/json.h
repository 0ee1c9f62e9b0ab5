// JSON from outside, read with suspicion.
#pragma once

#include <nlohmann/json.hpp>

#include <cstddef>
#include <string>
#include <string_view>

namespace headroom {

using Json = nlohmann::ordered_json;

// Parses `text` as one JSON document in valid UTF-8. Throws UserError "<origin>: ..." for syntax errors
// (with the byte), nesting deeper than `max_depth`, or a key that occurs twice in one object.
Json parse_json(std::string_view text, std::string_view origin, std::size_t max_depth = 64);

// The same with sorted keys: what to take for large objects, where looking a key up in the other kind takes time in
// proportion to their number.
using SortedJson = nlohmann::json;
SortedJson parse_sorted_json(std::string_view text, std::string_view origin, std::size_t max_depth = 64);

// One line, invalid UTF-8 replaced, doubles with enough digits to read back exactly; not-finite numbers as null.
std::string to_json_line(const Json& value);

}  // namespace headroom
