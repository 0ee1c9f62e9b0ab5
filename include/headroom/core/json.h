// Parses untrusted JSON, and writes JSON.
#pragma once

#include <nlohmann/json.hpp>

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace headroom {

using Json = nlohmann::ordered_json;

// Parses one JSON document in valid UTF-8. Throws UserError "<origin>: ..." for a syntax error (naming its byte), for
// nesting deeper than `max_depth`, and for a duplicate key.
Json parse_json(std::string_view text, std::string_view origin, std::size_t max_depth = 64);

// Parses a line of a file with one JSON object per line. Also throws UserError for other values, and for the first line
// of a value that spans several lines.
Json parse_json_line(std::string_view text, std::string_view origin);

// Like parse_json(), with sorted keys. Use it for large objects: lookups in the ordered type take linear time.
using SortedJson = nlohmann::json;
SortedJson parse_sorted_json(std::string_view text, std::string_view origin, std::size_t max_depth = 64);

// Reads a file that holds one JSON object. Returns an empty object if the file does not exist. Throws UserError naming
// the file.
SortedJson read_json_object(const std::filesystem::path& file);

// Writes one line. Replaces invalid UTF-8 by U+FFFD; doubles round-trip exactly; NaN and infinity become null.
std::string to_json_line(const Json& value);

}  // namespace headroom
