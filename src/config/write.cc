#include "headroom/config/config.h"
#include "headroom/core/printable.h"
#include "spelling.h"

namespace headroom::config {
namespace {

void write(const std::string& path, const std::vector<Field>& fields, const std::vector<Fields::Table>& tables,
           const GivenKeys& given, std::string& text) {
  if (!fields.empty()) {
    text += (text.empty() ? "[" : "\n[") + path + "]\n";
  }
  for (const Field& field : fields) {
    const auto source = given.find(path + "." + field.key);
    const std::string comment = source == given.end() ? "" : "  # " + printable(source->second);
    text += field.key + " = " + detail::spelled(field) + comment + "\n";
  }
  for (const Fields::Table& table : tables) {
    write(path.empty() ? table.key : path + "." + table.key, table.fields, table.tables, given, text);
  }
}

}  // namespace

std::string to_toml(const Config& config, bool sources) {
  Config copy = config;  // a description points into what it describes
  Fields fields;
  describe(fields, copy);
  std::string text;
  write("", fields.fields(), fields.tables(), sources ? config.given : GivenKeys(), text);
  return text;
}

}  // namespace headroom::config
