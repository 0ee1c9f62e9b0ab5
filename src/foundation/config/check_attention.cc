// Checks attention layers, and finds keys that have no effect with the selected parts.
#include <algorithm>
#include <cstddef>
#include <optional>

#include "checker.h"
#include "foundation/core/text/format.h"
#include "headroom/config/attention_part.h"
#include "parse.h"
#include "toml_value.h"

namespace headroom::config {
namespace {

using detail::Checker;

// A key with a non-default value that has no effect with the current choices.
struct UnusedKey {
  std::string table, key, value;       // "model.attention.", "n_experts", "8"
  std::string choice, chosen, needed;  // the key that decides, its value, and the values that give the key an effect
  bool refuse;                         // Field::refuse_unused
};

std::string list_of(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + detail::in_quotes(names[i]);
  }
  return text;
}

// `defaults` describes another object of the same type with its default values.
void add_unused(const std::string& path, const Table& table, const Table& defaults, std::vector<UnusedKey>& unused) {
  for (std::size_t i = 0; i < table.fields.size(); ++i) {
    const Field& field = table.fields[i];
    if (field.readers.empty()) {
      continue;
    }
    const std::string value = detail::spelled(field), chosen = std::get<Choice>(table.find(field.choice)->slot).get();
    const bool read = std::find(field.readers.begin(), field.readers.end(), chosen) != field.readers.end();
    if (!read && value != detail::spelled(defaults.fields[i])) {
      unused.push_back({path, field.key, value, field.choice, chosen, list_of(field.readers), field.refuse_unused});
    }
  }
  for (std::size_t i = 0; i < table.tables.size(); ++i) {
    add_unused(path + table.tables[i].key + ".", table.tables[i], defaults.tables[i], unused);
  }
}

template <class Options>
std::vector<UnusedKey> unused_in(Options options, const std::string& path) {
  Options usual;
  Fields fields, defaults;
  describe(fields, options);
  describe(defaults, usual);
  std::vector<UnusedKey> unused;
  add_unused(path, fields.root(), defaults.root(), unused);
  return unused;
}

// Returns whether a value set at `place` is meant for the current choice. A value from a base file that made another
// choice is not.
bool is_meant(const GivenKeys& given, std::string_view place, const UnusedKey& unused) {
  const auto file_of = [](std::string_view at) { return at.substr(0, at.rfind(':')); };  // strips the line number
  const auto chosen = given.find(unused.table + unused.choice);
  return chosen == given.end() || detail::is_option(place) || file_of(chosen->second) == file_of(place);
}

struct WindowPattern {
  std::int64_t local = 1, global = 0;  // layers per period: one local, then all global, then the remaining local layers
};

// Parses "local:global". Returns nullopt for other text, for numbers above 65536, and if both are 0.
std::optional<WindowPattern> parse_window_pattern(std::string_view text) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  const auto local = whole_number(text.substr(0, colon));
  const auto global = colon == text.size() ? std::nullopt : whole_number(text.substr(colon + 1));
  const bool valid = local && global && *local <= 65536 && *global <= 65536 && *local + *global > 0;
  return valid ? std::optional(WindowPattern{.local = *local, .global = *global}) : std::nullopt;
}

void check_scores(const Checker& check, const AttentionOptions& a) {
  check.require(a.window == 0 || a.score->has_scores(), "window", "must be 0 with {}, which sums over all keys",
                detail::setting("score", a.score));
  check.require(a.dropout == 0.0 || a.score->has_scores(), "dropout",
                "must be 0 with {}, which has no attention weights", detail::setting("score", a.score));
  check.require(parse_window_pattern(a.window_pattern).has_value(), "window_pattern",
                "must be local:global layers such as \"1:0\", \"1:1\" or \"3:1\", got \"{}\"", a.window_pattern);
  check.require(a.window > 0 || a.window_pattern == AttentionOptions().window_pattern, "window",
                "must be above 0 for the local layers of window_pattern = \"{}\"", a.window_pattern);
}

}  // namespace

namespace detail {

void check_attention(const ModelOptions& model, Origin origin) {
  const Checker check(origin, "model.attention");
  const AttentionOptions& a = model.attention;
  a.projection->check(check, model);
  a.score->check(check, model);
  a.composition->check(check, model);
  a.position->check(check, model);
  a.gate_output->check(check, model);
  for (const UnusedKey& unused : unused_in(a, "model.attention.")) {
    check.require(!unused.refuse, unused.key, "needs {} = {}, not \"{}\"", unused.choice, unused.needed, unused.chosen);
  }
  check_scores(check, a);
}

}  // namespace detail

std::vector<std::string> unused_keys(const Config& config) {
  std::vector<std::string> warnings;
  for (const UnusedKey& unused : unused_in(config.model, "model.")) {
    const auto given = config.given.find(unused.table + unused.key);
    if (given != config.given.end() && is_meant(config.given, given->second, unused)) {
      warnings.push_back(fmt::format("{}: {} = {} has no effect with {} = \"{}\", only with {}", given->second,
                                     given->first, unused.value, unused.choice, unused.chosen, unused.needed));
    }
  }
  return warnings;
}

std::vector<std::int64_t> layer_windows(const ModelOptions& model) {
  const auto pattern = parse_window_pattern(model.attention.window_pattern);
  if (!pattern) {
    user_error("model.attention.window_pattern: must be local:global such as 1:1 or 3:1, got \"{}\"",
               model.attention.window_pattern);
  }
  std::vector<std::int64_t> windows;
  for (std::int64_t layer = 0; layer < model.n_layers; ++layer) {
    const std::int64_t place = layer % (pattern->local + pattern->global);
    const std::int64_t first_global = pattern->local > 0 ? 1 : 0;
    const bool global = place >= first_global && place < first_global + pattern->global;
    windows.push_back(global ? 0 : model.attention.window);
  }
  return windows;
}

}  // namespace headroom::config
