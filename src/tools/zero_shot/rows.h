// Rows of JSON lines with the fields that a test needs.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "data/text/documents.h"
#include "headroom/core/json.h"

namespace headroom::tasks::zero_shot {

inline constexpr std::string_view kBlanks = " \t\r\n";

// Calls use(row, "file:line") for the object in each line that is not empty. Throws UserError for anything else.
void for_each_row(const data::Document& document, const std::function<void(const Json&, const std::string&)>& use);

// Throw UserError, beginning with `where`, for a field that is absent or no text with something in it.
const Json& value_in(const Json& row, const char* key, const std::string& where);
std::string text_in(const Json& row, const char* key, const std::string& where);

}  // namespace headroom::tasks::zero_shot
