#include "parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "foundation/core/machine/system.h"
#include "foundation/core/text/message.h"
#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"

namespace headroom::config {
namespace detail {
namespace {

// Maximum number of dots outside of strings and comments. Each may nest a table, and the library destroys nested tables
// recursively. No realistic config has as many.
constexpr std::size_t kMostDots = 2000;

// Returns the offset after the last quote of the string that begins at `start`, or the end of the text.
std::size_t end_of_string(std::string_view text, std::size_t start) {
  const char quote = text[start];
  const std::string thrice(3, quote);
  const bool lines = text.substr(start).starts_with(thrice);
  for (std::size_t i = start + (lines ? 3 : 1); i < text.size(); ++i) {
    if (text[i] == '\\' && quote == '"') {
      ++i;
    } else if (lines && text.substr(i).starts_with(thrice)) {
      i += 3;
      while (i < text.size() && text[i] == quote) {  // up to two quotes may precede the closing three
        ++i;
      }
      return i;
    } else if (!lines && (text[i] == quote || text[i] == '\n')) {
      return i + 1;
    }
  }
  return text.size();
}

void require_shallow(std::string_view text, std::string_view origin) {
  std::size_t dots = 0;
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == '"' || text[i] == '\'') {
      i = end_of_string(text, i);
    } else if (text[i] == '#') {
      i = std::min(text.find('\n', i), text.size());
    } else {
      dots += text[i] == '.' ? 1 : 0;
      ++i;
    }
  }
  if (dots > kMostDots) {
    user_error("{}: not a config: it contains {} dotted names and numbers", origin, dots);
  }
}

// Returns the library's message on one line, without its preamble.
std::string complaint(std::string_view description) {
  constexpr std::string_view kPreamble = "Error while parsing ";
  if (description.starts_with(kPreamble) && description.find(": ") != std::string_view::npos) {
    description.remove_prefix(description.find(": ") + 2);
  }
  const bool unquoted = description.starts_with("could not determine value type");
  return printable(description, 300) + (unquoted ? "; strings need quotes" : "");
}

// Returns whether this is a key of earlier versions that is ignored, because run folders state every key: with its
// default, or with any value if it does not change what a trained model computes.
bool is_gone(std::string_view dotted, const toml::node& value) {
  return (dotted == "train.shard" && value.value<std::string_view>() == "none") ||
         dotted == "data.shuffle_buffer";  // the order of images in tar files
}

class Reader {
 public:
  // File names are resolved relative to `folder`; if it is empty, they are left unchanged.
  Reader(const Table& all, std::string_view origin, const std::filesystem::path& folder, GivenKeys& given)
      : all_(all), origin_(origin), folder_(folder), given_(given) {}

  void read(const toml::table& values, const std::string& path, const Table& table) const {
    for (const auto& [key, value] : in_file_order(values)) {
      const std::string written = path.empty() ? std::string(key->str()) : fmt::format("{}.{}", path, key->str());
      const std::string dotted = current_name(written);
      const std::string name =
          dotted == written ? std::string(key->str()) : dotted.substr(dotted.rfind('.') + 1);  // a key may have dots
      const std::string place = fmt::format("{}:{}", origin_, key->source().begin.line);
      const Table* const inner = table.find_table(name);
      if (const Field* const field = table.find(name)) {
        assign(*field, *value, place + ": ", written);
        make_absolute(*field, folder_);
        given_[dotted] = place;
      } else if (inner != nullptr && value->is_table()) {
        read(*value->as_table(), dotted, *inner);
      } else if (inner != nullptr) {
        user_error("{}: {}: must be a table [{}], got {}", place, dotted, dotted, shown(*value));
      } else if (!is_gone(dotted, *value)) {
        refuse_unknown(place, path, name, value->is_table());
      }
    }
  }

 private:
  using Entry = std::pair<const toml::key*, const toml::node*>;

  [[noreturn]] void refuse_unknown(const std::string& place, const std::string& path, const std::string& name,
                                   bool table) const {
    if (name == "base") {
      user_error("{}: {}.base: unknown key; base must precede the first table", place, path);
    }
    std::string close = nearest_key(all_, path, name);
    if (close.starts_with(path + ".") && close.find('.', path.size() + 1) == std::string::npos) {
      close.erase(0, path.size() + 1);  // the suggestion is in the same table
    }
    user_error("{}: {}: unknown {}{}", place, printable(path.empty() ? name : path + "." + name),
               table ? "table" : "key", close.empty() ? "" : ", did you mean " + close + "?");
  }

  // Sorts entries by line, because the first mistake in the file is reported and the library sorts by name.
  static std::vector<Entry> in_file_order(const toml::table& values) {
    std::vector<Entry> entries;
    for (auto entry = values.cbegin(); entry != values.cend(); ++entry) {
      entries.emplace_back(&entry->first, &entry->second);
    }
    std::stable_sort(entries.begin(), entries.end(),
                     [](const Entry& a, const Entry& b) { return a.first->source().begin < b.first->source().begin; });
    return entries;
  }

  const Table& all_;
  std::string_view origin_;
  const std::filesystem::path& folder_;
  GivenKeys& given_;
};

}  // namespace

toml::table parse_toml(std::string_view text, std::string_view origin) {
  require_shallow(text, origin);
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    user_error("{}:{}: not valid TOML: {}", origin, error.source().begin.line, complaint(error.description()));
  }
}

void read_onto(Config& config, const toml::table& values, std::string_view origin,
               const std::filesystem::path& folder) {
  Fields fields;
  describe(fields, config);
  Reader(fields.root(), origin, folder, config.given).read(values, "", fields.root());
}

void make_absolute(const Field& field, const std::filesystem::path& folder) {
  if (!field.path || folder.empty()) {
    return;
  }
  const auto absolute = [&folder](std::string& name) {
    name = name.empty() ? name : absolute_path(folder / with_home(name)).string();
  };
  if (auto* const* const name = std::get_if<std::string*>(&field.slot)) {
    absolute(**name);
  } else if (auto* const* const names = std::get_if<std::vector<std::string>*>(&field.slot)) {
    std::for_each((*names)->begin(), (*names)->end(), absolute);
  }
}

}  // namespace detail

Config parse_config(std::string_view text, std::string_view origin) {
  Config config;
  detail::read_onto(config, detail::parse_toml(text, origin), origin, {});
  const GivenKeys given = std::exchange(config.given, {});
  detail::resolve(config, given);
  return config;
}

}  // namespace headroom::config
