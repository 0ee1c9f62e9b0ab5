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

// A key with a non-default value that has no effect with the current parts, only with other choices.
struct UnusedKey {
  std::string table, key, value;     // "model.attention.", "n_experts", "8"
  std::string choice, chosen;        // the key that selects the part, and its value: "projection", "dense"
  std::vector<std::string> readers;  // the values of that key with which this key has an effect
  bool refuse;                       // Field::refuse_unused

  std::string needed() const {
    std::string text;
    for (std::size_t i = 0; i < readers.size(); ++i) {
      text += (i == 0 ? "" : i + 1 == readers.size() ? " or " : ", ") + detail::in_quotes(readers[i]);
    }
    return text;
  }
};

class UnusedKeys {
 public:
  UnusedKeys(std::string table, const Fields& read) : table_(std::move(table)), read_(read) {}

  // Records the non-default fields of `own` that choice = reader reads, while the current value of `choice` is
  // `chosen`. `defaults` has the same fields as `own`, with their default values.
  void add(const Fields& own, const Fields& defaults, const std::string& choice, std::string_view chosen,
           std::string_view reader) {
    for (std::size_t i = 0; i < own.fields().size(); ++i) {
      const Field& field = own.fields()[i];
      const std::string value = detail::spelled(field);
      if (read_.has(field.key) || value == detail::spelled(defaults.fields()[i])) {
        continue;
      }
      const auto known = std::find_if(keys.begin(), keys.end(), [&](const auto& key) { return key.key == field.key; });
      if (known != keys.end()) {
        known->readers.emplace_back(reader);
      } else {
        keys.push_back(
            {table_, field.key, value, choice, std::string(chosen), {std::string(reader)}, field.refuse_unused});
      }
    }
  }
  template <class Part>
  void add_parts(const std::string& choice, const PartName<Part>& chosen, AttentionOptions& options) {
    AttentionOptions usual;
    for (const Part* part : all_parts<Part>()) {
      Fields own, defaults;
      part->describe(own, options);
      part->describe(defaults, usual);
      add(own, defaults, choice, chosen.name(), part->name());
    }
  }

  std::vector<UnusedKey> keys;

 private:
  std::string table_;
  const Fields& read_;
};

std::vector<UnusedKey> unused_in(AttentionOptions o) {
  Fields read;
  o.projection->describe(read, o);
  o.score->describe(read, o);
  o.composition->describe(read, o);
  o.position->describe(read, o);
  o.gate_output->describe(read, o);
  UnusedKeys unused("model.attention.", read);
  unused.add_parts("projection", o.projection, o);
  unused.add_parts("score", o.score, o);
  unused.add_parts("composition", o.composition, o);
  unused.add_parts("position", o.position, o);
  unused.add_parts("gate_output", o.gate_output, o);
  return std::move(unused.keys);
}

std::vector<UnusedKey> unused_in(MlpOptions options) {
  MlpOptions usual;
  Fields own, defaults, read;
  detail::describe_experts(own, options);
  detail::describe_experts(defaults, usual);
  UnusedKeys unused("model.mlp.", read);
  if (options.kind != MlpKind::experts) {
    unused.add(own, defaults, "kind", name_of(options.kind), name_of(MlpKind::experts));
  }
  return std::move(unused.keys);
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
  for (const UnusedKey& unused : unused_in(a)) {
    check.require(!unused.refuse, unused.key, "needs {} = {}, not \"{}\"", unused.choice, unused.needed(),
                  unused.chosen);
  }
  check_scores(check, a);
}

}  // namespace detail

std::vector<std::string> unused_keys(const Config& config) {
  std::vector<UnusedKey> unused = unused_in(config.model.attention);
  const std::vector<UnusedKey> of_mlp = unused_in(config.model.mlp);
  unused.insert(unused.end(), of_mlp.begin(), of_mlp.end());
  std::vector<std::string> warnings;
  for (const UnusedKey& key : unused) {
    const auto given = config.given.find(key.table + key.key);
    if (given != config.given.end() && is_meant(config.given, given->second, key)) {
      warnings.push_back(fmt::format("{}: {} = {} has no effect with {} = \"{}\", only with {}", given->second,
                                     given->first, key.value, key.choice, key.chosen, key.needed()));
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
