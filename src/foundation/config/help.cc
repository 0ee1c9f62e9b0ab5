#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "headroom/config/config.h"
#include "spelling.h"

namespace headroom::config {
namespace {

constexpr std::size_t kIndent = 36, kColumns = 100;

// Continues `line` with the words of `text`, broken at kColumns and indented below its first one. What is in the
// last parentheses stays together where it can.
void wrap(std::string line, std::string_view text, std::string& out) {
  const std::size_t last = text.ends_with(')') ? text.rfind('(') : std::string_view::npos;
  const bool whole = last != std::string_view::npos && kIndent + text.size() - last <= kColumns;
  for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
    end = whole && begin == last ? text.size() : std::min(text.find(' ', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    const bool first = line.size() == kIndent;
    if (!first && line.size() + 1 + word.size() > kColumns) {
      out += line + "\n";
      line = std::string(kIndent, ' ');
    } else if (!first) {
      line += ' ';
    }
    line += word;
  }
  out += line + "\n";
}

std::string short_number(double value) {
  return value == std::floor(value) ? fmt::format("{:.0f}", value) : fmt::format("{}", value);
}

// Upper ends that only keep sums in 64 bits are left out.
std::string range_help(const Range& range) {
  constexpr double kNoLimit = 1e6;
  const std::string low = short_number(range.low);
  if (range.high >= kNoLimit && std::isinf(range.low)) {
    return {};
  }
  if (range.high >= kNoLimit) {
    return fmt::format("{} {}", range.above ? "above" : "at least", low);
  }
  return fmt::format("{}{} to {}{}", range.above ? "above " : "", low, range.below ? "below " : "",
                     short_number(range.high));
}

// The values allowed, where the default does not show them.
std::string allowed(const Field& field) {
  if (const Choice* const choice = std::get_if<Choice>(&field.slot)) {
    return fmt::format(" ({})", fmt::join(choice->names, " | "));
  }
  if (!field.choices.empty()) {
    return fmt::format(" (any of {})", fmt::join(field.choices, ", "));
  }
  const bool number = std::holds_alternative<std::int64_t*>(field.slot) ||
                      std::holds_alternative<double*>(field.slot) ||
                      std::holds_alternative<std::vector<std::int64_t>*>(field.slot) ||
                      std::holds_alternative<std::vector<double>*>(field.slot);
  const std::string range = number ? range_help(field.range) : "";
  return range.empty() ? "" : fmt::format(" ({})", range);
}

void explain(const std::string& path, const std::string& about, const std::vector<Field>& fields,
             const std::vector<Fields::Table>& tables, std::string& out) {
  if (!fields.empty()) {
    out += fmt::format("\n[{}]  {}\n", path, about);
  }
  for (const Field& field : fields) {
    std::string line = fmt::format("  {} = {}", field.key, detail::spelled(field));
    if (line.size() + 2 > kIndent) {
      out += line + "\n";
      line.clear();
    }
    line.resize(kIndent, ' ');
    wrap(std::move(line), field.about + allowed(field), out);
  }
  for (const Fields::Table& table : tables) {
    explain(path.empty() ? table.key : path + "." + table.key, table.about, table.fields, table.tables, out);
  }
}

}  // namespace

std::string help_text() {
  Config config;
  Fields fields;
  describe(fields, config);
  std::string out =
      "A config is a TOML file that says what differs from these defaults.\n"
      "--set table.key=value changes one key.\n"
      "base = \"other.toml\" (or a recipe's name) before the first table inherits what that one says.\n"
      "Names of files are relative to the config that holds them.\n"
      "A word before a colon names the choice that a key belongs to.\n";
  explain("", "", fields.fields(), fields.tables(), out);
  return out;
}

}  // namespace headroom::config
