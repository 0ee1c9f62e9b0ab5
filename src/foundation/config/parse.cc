#include "parse.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "foundation/core/machine/system.h"
#include "foundation/core/text/format.h"
#include "foundation/core/text/utf8.h"
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
         dotted == "data.shuffle_buffer" ||  // the order of images in tar files
         dotted == "train.teacher_top_k";    // a teacher's likeliest tokens
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
    std::ranges::stable_sort(
        entries, [](const Entry& a, const Entry& b) { return a.first->source().begin < b.first->source().begin; });
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

namespace {

constexpr std::string_view kBlanks = " \t";  // without line ends, which may end an unquoted value

const Field& find_field(const Table& all, const std::string& dotted, const std::string& place) {
  const Table* table = &all;
  std::size_t start = 0;
  for (std::size_t dot = dotted.find('.'); dot != std::string::npos; dot = dotted.find('.', start)) {
    const Table* const inner = table->find_table(dotted.substr(start, dot - start));
    if (inner == nullptr) {
      break;
    }
    table = inner;
    start = dot + 1;
  }
  const std::string name = dotted.substr(start);
  if (const Field* const field = table->find(name)) {
    return *field;
  }
  if (const Table* const inner = table->find_table(name)) {
    user_error("{}{}: is a table; set one of its keys, such as {}.{}", place, dotted, dotted,
               inner->fields.front().key);
  }
  const std::string path = start == 0 ? "" : dotted.substr(0, start - 1);
  const std::string close = detail::nearest_key(all, path, dotted.substr(dotted.rfind('.') + 1));
  user_error("{}{}: unknown key{}", place, dotted, close.empty() ? "" : ", did you mean " + close + "?");
}

// Parses `text` as the value of a key "value"; returns nullopt if it is not a single TOML value.
std::optional<toml::table> as_toml(std::string_view text) {
  try {
    toml::table table = detail::parse_toml(fmt::format("value = {}", text), "--set");
    return table.size() == 1 ? std::optional(std::move(table)) : std::nullopt;
  } catch (const UserError&) {
    return std::nullopt;
  }
}

// Parses a list without quotes, as shells pass it: [v, o].
toml::array bare_list(std::string_view text) {
  toml::array list;
  for (text = trimmed(text.substr(1, text.size() - 2), kBlanks); !text.empty();) {
    const std::size_t comma = std::min(text.find(','), text.size());
    list.push_back(std::string(trimmed(text.substr(0, comma), kBlanks)));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return list;
}

// Returns the value that `text` means: TOML, a list without quotes, or a string.
toml::table value_of(std::string_view text, bool wants_text) {
  std::optional<toml::table> table = as_toml(text);
  if (table && (!wants_text || (*table)["value"].is_string())) {
    return std::move(*table);
  }
  if (!wants_text && text.starts_with('[') && text.ends_with(']') && text.size() >= 2) {
    return toml::table{{"value", bare_list(text)}};
  }
  return toml::table{{"value", std::string(text)}};
}

constexpr std::string_view kLayers = "model.layers.";

// Sets "model.layers.1.attention.window".
void set_layer_key(std::vector<LayerOptions>& layers, const std::string& key, std::string_view text,
                   const std::string& place) {
  const std::size_t begin = kLayers.size(), dot = std::min(key.find('.', begin), key.size());
  const auto index = whole_number(std::string_view(key).substr(begin, dot - begin));
  if (!index || *index >= std::ssize(layers) || dot == key.size()) {
    user_error("{}{}: must be model.layers.N.KEY, where N is an entry of model.layers, of which there {} {}", place,
               key, layers.size() == 1 ? "is" : "are", layers.size());
  }
  detail::assign_layer_key(layers[static_cast<std::size_t>(*index)], key.substr(dot + 1),
                           *value_of(text, false).get("value"), place, key.substr(0, dot));
}

// Returns the end of a value: the next comma outside brackets and quotes, or the end of the text.
std::size_t value_end(std::string_view text, std::size_t at) {
  int depth = 0;
  char quote = 0;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (quote != 0) {
      quote = c == quote ? 0 : quote;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '[' || c == '{' || c == '(') {
      ++depth;
    } else if (c == ']' || c == '}' || c == ')') {
      --depth;
    } else if (c == ',' && depth <= 0) {
      break;
    }
  }
  return at;
}

}  // namespace

std::string set_key(Config& config, std::string_view assignment, std::string_view origin) {
  const std::string place = fmt::format("{}: ", origin);
  const std::size_t equals = assignment.find('=');
  const std::string written(trimmed(assignment.substr(0, equals), kBlanks));
  if (equals == std::string_view::npos || written.empty()) {
    user_error("{}\"{}\": must be key=value, as in train.steps=500", place, assignment);
  }
  const std::string_view text = trimmed(assignment.substr(equals + 1), kBlanks);
  if (!is_utf8(text)) {
    user_error("{}{}: the value is not valid UTF-8", place, written);
  }
  std::string key = detail::current_name(written);
  if (key.starts_with(kLayers)) {
    set_layer_key(config.model.layers, key, text, place);
    return key;
  }
  Fields fields;
  describe(fields, config);
  const Field& field = find_field(fields.root(), key, place);
  const toml::table value = value_of(text, std::holds_alternative<std::string*>(field.slot));
  detail::assign(field, *value.get("value"), place, written);
  GivenKeys given = config.given;
  given[key] = origin;
  detail::resolve_model(config.model, given);
  return key;
}

Variation parse_variation(std::string_view text, std::string_view option) {
  const std::size_t equals = text.find('=');
  Variation variation;
  if (equals != std::string_view::npos) {
    variation.key = text.substr(0, equals);
    for (std::size_t begin = equals + 1; begin <= text.size();) {
      const std::size_t end = value_end(text, begin);
      variation.values.emplace_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  const bool empty = std::ranges::any_of(variation.values, [](const std::string& value) { return value.empty(); });
  if (variation.key.empty() || variation.values.empty() || empty) {
    user_error("{} {}: must be KEY=VALUE,VALUE,..., as in train.learning_rate=3e-4,1e-3", option, text);
  }
  return variation;
}

}  // namespace headroom::config
