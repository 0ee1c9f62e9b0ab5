#include "rows.h"

#include "foundation/core/text/utf8.h"
#include "headroom/core/error.h"

namespace headroom::tasks::zero_shot {

void for_each_row(const data::Document& document, const std::function<void(const Json&, const std::string&)>& use) {
  data::for_each_line(document.text, [&](std::string_view line, std::int64_t number) {
    if (trimmed(line).empty()) {
      return;
    }
    const std::string where = fmt::format("{}:{}", document.name, number);
    const Json row = parse_json(line, where);
    if (!row.is_object()) {
      user_error("{}: must be a JSON object, got {}", where, row.type_name());
    }
    use(row, where);
  });
}

const Json& value_in(const Json& row, const char* key, const std::string& where) {
  const auto found = row.find(key);
  if (found == row.end()) {
    user_error("{}: has no field \"{}\"", where, key);
  }
  return *found;
}

std::string text_in(const Json& row, const char* key, const std::string& where) {
  const Json& found = value_in(row, key, where);
  if (!found.is_string() || trimmed(found.get_ref<const std::string&>()).empty()) {
    user_error("{}: field \"{}\" must be a text, got {}", where, key,
               found.is_string() ? "an empty one" : std::string(found.type_name()));
  }
  return found.get<std::string>();
}

}  // namespace headroom::tasks::zero_shot
