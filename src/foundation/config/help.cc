#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "foundation/core/text/format.h"
#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "parse.h"

namespace headroom::config {
namespace {

constexpr std::size_t kIndent = 36, kColumns = 100;

// Appends `text` to `line`, wrapped at kColumns and indented by kIndent. A final parenthesis is not broken if it fits
// on one line.
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

// Omits upper limits that only prevent overflow.
std::string range_help(const Interval& range) {
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

// Returns the permitted values; empty if the type of the default implies them.
std::string permitted(const Field& field) {
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

std::string explain(const Field& field) {
  std::string text, line = fmt::format("  {} = {}", field.key, detail::spelled(field));
  if (line.size() + 2 > kIndent) {
    text = line + "\n";
    line.clear();
  }
  line.resize(kIndent, ' ');
  wrap(std::move(line), field.about + permitted(field), text);
  return text;
}

// Returns the help of a table and its subtables. A non-empty `wanted` restricts it to the field or table of this name.
std::string explain(const std::string& path, const Table& table, const std::string& wanted) {
  const bool whole = wanted.empty() || wanted == path;
  std::string fields, tables;
  for (const Field& field : table.fields) {
    fields += whole || wanted == path + "." + field.key ? explain(field) : "";
  }
  for (const Table& inner : table.tables) {
    tables += explain(path.empty() ? inner.key : path + "." + inner.key, inner, whole ? "" : wanted);
  }
  return (fields.empty() ? "" : fmt::format("\n[{}]  {}\n", path, table.about) + fields) + tables;
}

}  // namespace

std::string help_text(const std::string& name) {
  Config config;
  Fields fields;
  describe(fields, config);
  const std::string present = detail::current_name(name), keys = explain("", fields.root(), present);
  if (!name.empty()) {
    if (keys.empty()) {
      const std::string close = suggest_key(name);
      user_error("--help-config: {}: unknown key{}", name,
                 close.empty() ? "; headroom train --help-config lists all" : ", did you mean " + close + "?");
    }
    return keys.substr(1);
  }
  return "A config is a TOML file with the keys that differ from these defaults.\n"
         "--set table.key=value changes one key.\n"
         "base = \"other.toml\" (or a recipe's name) before the first table inherits from that config.\n"
         "File names are relative to the config that contains them.\n"
         "A word before a colon is the choice that a key belongs to.\n" +
         keys;
}

namespace detail {
namespace {

using KeyName = std::pair<std::string_view, std::string_view>;

// Keys in files and checkpoints of earlier versions, with their current names.
constexpr KeyName kEarlierNames[] = {
    {"train.parts", "train.gradient_accumulators"}, {"data.most_words", "data.max_words"},
    {"data.length_ratio", "data.max_length_ratio"}, {"data.validation_share", "data.validation_fraction"},
    {"data.pixel_deviation", "data.pixel_std"},     {"model.attention.shift_deviation", "model.attention.shift_std"},
    {"decoding.beam", "decoding.beam_size"},
};

// Keys of other tools, separated by spaces, that are too different from ours to be suggested by similarity.
constexpr KeyName kNamesElsewhere[] = {
    {"model.n_layers", "n_layer num_layers num_hidden_layers depth"},
    {"model.d_model", "n_embd n_embed embed_dim hidden_size dim"},
    {"model.context_length", "block_size seq_len seq_length max_seq_len n_ctx n_positions max_position_embeddings"},
    {"model.vocabulary_size", "vocab_size"},
    {"model.attention.n_heads", "n_head num_heads nhead num_attention_heads"},
    {"model.attention.n_kv_heads", "n_kv_head num_key_value_heads"},
    {"model.attention.d_head", "head_dim"},
    {"model.attention.rope_base", "rope_theta"},
    {"model.attention.window", "sliding_window"},
    {"model.mlp.d_hidden", "intermediate_size ffn_dim d_ff n_inner"},
    {"model.mlp.activation", "hidden_act"},
    {"train.learning_rate", "lr max_lr"},
    {"train.final_learning_rate", "min_lr"},
    {"train.schedule", "lr_scheduler lr_scheduler_type"},
    {"train.steps", "max_iters max_steps num_steps iters iterations epochs num_epochs num_train_epochs"},
    {"train.batch_size", "bs per_device_train_batch_size"},
    {"train.accumulate", "micro_batches grad_accum gradient_accumulation_steps"},
    {"train.weight_decay", "wd"},
    {"train.clip_norm", "grad_clip max_grad_norm"},
    {"train.warmup_steps", "warmup warmup_iters"},
    {"train.precision", "dtype"},
    {"train.evaluate_every", "eval_interval eval_steps"},
    {"train.evaluate_tokens", "eval_iters"},
    {"train.checkpoint_every", "save_interval save_steps"},
    {"train.keep_checkpoints", "save_total_limit"},
    {"train.log_every", "log_interval logging_steps"},
};

}  // namespace

std::string current_name(const std::string& dotted) {
  for (const auto& [earlier, present] : kEarlierNames) {
    if (earlier == dotted) {
      return std::string(present);
    }
  }
  return dotted;
}

std::string nearest_key(const Table& all, const std::string& table, std::string_view wrong) {
  std::vector<std::string> known;  // dotted names of all keys and tables
  const auto add_tables = [&known](const auto& self, const Table& outer, const std::string& prefix) -> void {
    for (const Field& field : outer.fields) {
      known.push_back(prefix + field.key);
    }
    for (const Table& inner : outer.tables) {
      known.push_back(prefix + inner.key);
      self(self, inner, prefix + inner.key + ".");
    }
  };
  add_tables(add_tables, all, "");
  const std::string prefix = table.empty() ? "" : table + ".";
  const auto key_of = [](const std::string& dotted) { return dotted.substr(dotted.rfind('.') + 1); };
  std::vector<std::string> neighbours, others;
  for (const std::string& dotted : known) {
    if (key_of(dotted) == wrong) {  // the right key in the wrong table
      return dotted;
    }
    (dotted == prefix + key_of(dotted) ? neighbours : others).push_back(key_of(dotted));
  }
  for (const auto& [key, elsewhere] : kNamesElsewhere) {
    if (fmt::format(" {} ", elsewhere).find(fmt::format(" {} ", wrong)) != std::string::npos) {
      return std::string(key);
    }
  }
  if (const std::string key = nearest(wrong, neighbours); !key.empty()) {
    return prefix + key;
  }
  const std::string key = nearest(wrong, others);
  const auto where = std::ranges::find_if(known, [&](const auto& dotted) { return key_of(dotted) == key; });
  return where == known.end() ? "" : *where;
}

}  // namespace detail

std::string suggest_key(std::string_view wrong) {
  Config config;
  Fields fields;
  describe(fields, config);
  const std::size_t key = wrong.rfind('.') + 1;  // 0 without a table
  return detail::nearest_key(fields.root(), std::string(wrong.substr(0, std::max<std::size_t>(key, 1) - 1)),
                             wrong.substr(key));
}

}  // namespace headroom::config
