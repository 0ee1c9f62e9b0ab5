#include <functional>
#include <map>
#include <optional>

#include "foundation/core/text/printable.h"
#include "headroom/config/config.h"
#include "spelling.h"

namespace headroom::config {
namespace {

// What stands behind a key with this value; nothing: the key is left out.
using Remark = std::function<std::optional<std::string>(const std::string& key, const std::string& value)>;

void write(const std::string& path, const std::vector<Field>& fields, const std::vector<Fields::Table>& tables,
           const Remark& remark, std::string& text) {
  std::string lines;
  for (const Field& field : fields) {
    const std::string value = detail::spelled(field);
    if (const std::optional<std::string> behind = remark(path + "." + field.key, value)) {
      lines += field.key + " = " + value + (behind->empty() ? "" : "  # " + printable(*behind)) + "\n";
    }
  }
  if (!lines.empty()) {
    text += (text.empty() ? "[" : "\n[") + path + "]\n" + lines;
  }
  for (const Fields::Table& table : tables) {
    write(path.empty() ? table.key : path + "." + table.key, table.fields, table.tables, remark, text);
  }
}

void write(const Config& config, const Remark& remark, std::string& text) {
  Config copy = config;  // a description points into what it describes
  Fields fields;
  describe(fields, copy);
  write("", fields.fields(), fields.tables(), remark, text);
}

}  // namespace

std::string to_toml(const Config& config, bool sources) {
  std::string text;
  const auto source_of = [&](const std::string& key, const std::string& /*value*/) -> std::optional<std::string> {
    const auto source = config.given.find(key);
    return !sources || source == config.given.end() ? "" : source->second;
  };
  write(config, source_of, text);
  return text;
}

std::string changes_to_toml(const Config& config, const Config& base, const std::string& name) {
  std::map<std::string, std::string> old;
  std::string text;
  const auto collect = [&](const std::string& key, const std::string& value) -> std::optional<std::string> {
    old[key] = value;
    return "";
  };
  write(base, collect, text);
  text = "base = " + detail::in_quotes(name) + "\n";
  const auto changed = [&](const std::string& key, const std::string& value) -> std::optional<std::string> {
    const bool follows = key == "model.vocabulary_size" && config.vocabulary_follows_tokenizer;
    return follows || old[key] == value ? std::nullopt : std::optional("was " + old[key]);
  };
  write(config, changed, text);
  return text;
}

}  // namespace headroom::config
