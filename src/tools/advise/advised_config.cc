#include "advised_config.h"

#include <fmt/format.h>

#include <set>
#include <sstream>

#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/core/json.h"

namespace headroom::compare {
namespace {

namespace fs = std::filesystem;

// The lines of the config's TOML with these keys, under the headings of their tables.
std::string lines_with(const config::Config& config, const std::set<std::string>& keys) {
  std::istringstream lines(config::to_toml(config));
  std::string text, table, heading;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('[')) {
      heading = "\n" + line + "\n";
      table = line.substr(1, line.size() - 2);
    } else if (keys.contains(table + "." + line.substr(0, line.find(' ')))) {
      text += heading + line + "\n";
      heading.clear();
    }
  }
  return text;
}

std::set<std::string> changed_keys(const config::Config& config, const config::Config& base) {
  const auto now = config::flatten(config), before = config::flatten(base);
  std::set<std::string> keys;
  for (std::size_t i = 0; i < now.size(); ++i) {
    const bool follows = config.vocabulary_follows_tokenizer && now[i].first == "model.vocabulary_size";
    if (now[i].second != before[i].second && !follows) {
      keys.insert(now[i].first);
    }
  }
  return keys;
}

std::string quoted(const std::string& text) {
  return Json(text).dump();  // a TOML string where it is a path or a name
}

}  // namespace

void write_advised(const config::Config& config, const std::string& source, const std::string& remark,
                   const fs::path& file) {
  std::error_code error;
  const bool is_file = fs::is_regular_file(source, error);
  const std::string base = is_file ? fs::absolute(source).lexically_normal().string() : source;
  const std::set<std::string> keys = changed_keys(config, config::load_config(source));
  write_text_file(file, fmt::format("{}base = {}\n{}", remark, quoted(base), lines_with(config, keys)));
  try {
    if (config::flatten(config::load_config(file.string())) == config::flatten(config)) {
      return;
    }
  } catch (const UserError&) {  // keys that the base does not go with
  }
  write_text_file(file, remark + config::to_toml(config));
}

}  // namespace headroom::compare
