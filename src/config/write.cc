#include "headroom/config/config.h"
#include "spelling.h"

namespace headroom::config {
namespace {

void write(const std::string& path, const std::vector<Field>& fields, const std::vector<Fields::Table>& tables,
           std::string& text) {
  if (!fields.empty()) {
    text += (text.empty() ? "[" : "\n[") + path + "]\n";
  }
  for (const Field& field : fields) {
    text += field.key + " = " + detail::spelled(field) + "\n";
  }
  for (const Fields::Table& table : tables) {
    write(path.empty() ? table.key : path + "." + table.key, table.fields, table.tables, text);
  }
}

}  // namespace

std::string to_toml(const Config& config) {
  Config copy = config;  // a description points into what it describes
  Fields fields;
  describe(fields, copy);
  std::string text;
  write("", fields.fields(), fields.tables(), text);
  return text;
}

}  // namespace headroom::config
