#include <fmt/ranges.h>

#include <type_traits>
#include <variant>

#include "headroom/config/config.h"

namespace headroom::config {
namespace {

using Values = std::vector<std::pair<std::string, std::string>>;

std::string text_of(const Field& field) {
  return std::visit(
      [](const auto& slot) -> std::string {
        if constexpr (std::is_same_v<std::decay_t<decltype(slot)>, Choice>) {
          return slot.get();
        } else {
          return fmt::format("{}", *slot);
        }
      },
      field.slot);
}

void collect(const std::string& prefix, const std::vector<Field>& fields, const std::vector<Fields::Table>& tables,
             Values& values) {
  for (const Field& field : fields) {
    values.emplace_back(prefix + field.key, text_of(field));
  }
  for (const Fields::Table& table : tables) {
    collect(prefix + table.key + ".", table.fields, table.tables, values);
  }
}

}  // namespace

std::vector<std::pair<std::string, std::string>> flatten(const Config& config) {
  Config copy = config;  // a description points into what it describes
  Fields fields;
  describe(fields, copy);
  Values values;
  collect("", fields.fields(), fields.tables(), values);
  return values;
}

}  // namespace headroom::config
