#include "parse.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "assign.h"
#include "foundation/core/text/printable.h"
#include "given.h"
#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "nearest.h"

namespace headroom::config {
namespace detail {
namespace {

// Every dot outside strings and comments may open a table in a table, and the library takes nested ones apart by
// recursion. No sensible file has as many.
constexpr std::size_t kMostDots = 2000;

// Where the string that begins at `start` ends (one past its last quote), or the end of the text.
std::size_t end_of_string(std::string_view text, std::size_t start) {
  const char quote = text[start];
  const std::string thrice(3, quote);
  const bool lines = text.substr(start).starts_with(thrice);
  for (std::size_t i = start + (lines ? 3 : 1); i < text.size(); ++i) {
    if (text[i] == '\\' && quote == '"') {
      ++i;
    } else if (lines && text.substr(i).starts_with(thrice)) {
      i += 3;
      while (i < text.size() && text[i] == quote) {  // quotes may stand right before the closing three
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
    user_error("{}: not a config: it has {} dotted names and numbers", origin, dots);
  }
}

// The library's sentence without its preamble, on one line.
std::string complaint(std::string_view description) {
  constexpr std::string_view kPreamble = "Error while parsing ";
  if (description.starts_with(kPreamble) && description.find(": ") != std::string_view::npos) {
    description.remove_prefix(description.find(": ") + 2);
  }
  const bool unquoted = description.starts_with("could not determine value type");
  return printable(description, 300) + (unquoted ? "; text is written in quotes" : "");
}

// Keys of earlier versions, whose files may have them with the one value that they had a use for.
bool is_gone(std::string_view dotted, const toml::node& value) {
  return dotted == "train.shard" && value.value<std::string_view>() == "none";
}

class Reader {
 public:
  // `folder`: what names of files are relative to; empty: they stay as they are.
  Reader(const Fields& all, std::string_view origin, const std::filesystem::path& folder, GivenKeys& given)
      : all_(all), origin_(origin), folder_(folder), given_(given) {}

  void read(const toml::table& values, const std::string& path, const std::vector<Field>& fields,
            const std::vector<Fields::Table>& tables) const {
    for (const auto& [key, value] : in_file_order(values)) {
      const std::string name(key->str());
      const std::string dotted = path.empty() ? name : fmt::format("{}.{}", path, name);
      const std::string place = fmt::format("{}:{}: ", origin_, key->source().begin.line);
      const auto field = std::find_if(fields.begin(), fields.end(), [&](const Field& f) { return f.key == name; });
      const auto table = std::find_if(tables.begin(), tables.end(), [&](const auto& t) { return t.key == name; });
      if (field != fields.end()) {
        assign(*field, *value, place, dotted);
        make_absolute(*field, folder_);
        given_[dotted] = fmt::format("{}:{}", origin_, key->source().begin.line);
      } else if (table == tables.end() && is_gone(dotted, *value)) {
        continue;
      } else if (table == tables.end()) {
        refuse_unknown(place, path, name, value->is_table());
      } else if (const toml::table* const inner = value->as_table()) {
        read(*inner, dotted, table->fields, table->tables);
      } else {
        user_error("{}{}: must be a table [{}], got {}", place, dotted, dotted, shown(*value));
      }
    }
  }

  [[noreturn]] void refuse_unknown(const std::string& place, const std::string& path, const std::string& name,
                                   bool table) const {
    std::string close = nearest_key(all_, path, name);
    if (close.starts_with(path + ".") && close.find('.', path.size() + 1) == std::string::npos) {
      close.erase(0, path.size() + 1);  // a neighbour
    }
    user_error("{}{}: unknown {}{}", place, printable(path.empty() ? name : path + "." + name), table ? "table" : "key",
               close.empty() ? "" : ", did you mean " + close + "?");
  }

 private:
  using Entry = std::pair<const toml::key*, const toml::node*>;

  // The first mistake in the file is the one to report; the library sorts by name.
  static std::vector<Entry> in_file_order(const toml::table& values) {
    std::vector<Entry> entries;
    for (auto entry = values.cbegin(); entry != values.cend(); ++entry) {
      entries.emplace_back(&entry->first, &entry->second);
    }
    std::stable_sort(entries.begin(), entries.end(),
                     [](const Entry& a, const Entry& b) { return a.first->source().begin < b.first->source().begin; });
    return entries;
  }

  const Fields& all_;
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
  Reader(fields, origin, folder, config.given).read(values, "", fields.fields(), fields.tables());
}

void make_absolute(const Field& field, const std::filesystem::path& folder) {
  if (!field.path || folder.empty()) {
    return;
  }
  const auto absolute = [&folder](std::string& name) {
    name = name.empty() ? name : (folder / name).lexically_normal().string();
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
  detail::decide_vocabulary(config, given);
  detail::decide_context(config.model, given);
  return config;
}

}  // namespace headroom::config
