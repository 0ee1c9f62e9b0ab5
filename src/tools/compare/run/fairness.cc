// Which configs may be compared, and what must be said about it.
#include "fairness.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "headroom/core/error.h"
#include "record.h"
#include "tools/compare/compare.h"
#include "tools/compare/report/markup.h"

namespace headroom::compare {
namespace {

using KeyValues = std::vector<std::pair<std::string, std::string>>;
using ValuesAndNames = std::vector<std::pair<std::string, std::string>>;

// How often to write changes nothing about what is measured.
bool is_bookkeeping(const std::string& key) {
  static const std::set<std::string> kKeys = {
      "train.log_every", "train.checkpoint_every", "train.keep_checkpoints", "train.evaluate_every",
      "train.keep_best", "train.sample_every",     "train.sample_prompt"};
  return kKeys.contains(key);
}

// Whether the run makes its tokenizer from text: then tokenizer.kind is that of the tokenizer.
bool makes_tokenizer(const config::Config& config) {
  const auto none = [](const std::vector<std::string>& files) {
    return std::none_of(files.begin(), files.end(), config::is_token_file);
  };
  return !config.model.has_classes() && config.tokenizer.model.empty() && none(config.data.train) &&
         none(config.data.validation);
}

bool belongs_to_training(const std::string& key) {
  return (key.starts_with("train.") && !is_bookkeeping(key)) || key.starts_with("data.") ||
         key.starts_with("tokenizer.") || key.starts_with("decoding.") || key.starts_with("model.initialisation") ||
         key == "model.embedding_std" || key == "model.context_length" || key == "model.memory_length";
}

void check_names(const std::vector<NamedConfig>& configs) {
  if (configs.empty()) {
    user_error("compare: needs at least one config");
  }
  std::set<std::string> names;
  for (const NamedConfig& named : configs) {
    if (named.name.empty() || named.name.front() == '.' || named.name.find('/') != std::string::npos ||
        named.name == "report.html" || named.name == kRecordFile) {
      user_error("compare: \"{}\" cannot name a run: it must be the name of a folder that is not hidden", named.name);
    }
    if (!names.insert(named.name).second) {
      user_error("compare: two configs are named {}: give them different file names", named.name);
    }
  }
}

// "0.001 (a, c), 0.0005 (b)"; of names that would fill lines their number.
std::string who_has_what(const ValuesAndNames& value_and_name) {
  constexpr std::size_t kMostCharacters = 60;
  std::vector<std::pair<std::string, std::vector<std::string>>> groups;
  for (const auto& [value, name] : value_and_name) {
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == value; });
    if (group == groups.end()) {
      group = groups.insert(groups.end(), {value, {}});
    }
    group->second.push_back(name);
  }
  std::vector<std::string> parts;
  for (const auto& [value, names] : groups) {
    const std::string list = fmt::format("{}", fmt::join(names, ", "));
    parts.push_back(fmt::format(
        "{} ({})", value, names.size() > 1 && list.size() > kMostCharacters ? counted(names.size(), "run") : list));
  }
  return enumerated(parts);
}

bool all_equal(const ValuesAndNames& value_and_name) {
  return std::all_of(value_and_name.begin(), value_and_name.end(),
                     [&](const auto& entry) { return entry.first == value_and_name.front().first; });
}

struct Difference {
  std::string key;
  ValuesAndNames values;
};

// The keys in which the configs are not all alike.
std::vector<Difference> differences(const std::vector<NamedConfig>& configs) {
  std::vector<KeyValues> flat;
  for (const NamedConfig& named : configs) {
    flat.push_back(config::flatten(named.config));
  }
  std::vector<Difference> found;
  for (std::size_t k = 0; k < flat.front().size(); ++k) {
    Difference difference{flat.front()[k].first, {}};
    for (std::size_t i = 0; i < configs.size(); ++i) {
      difference.values.emplace_back(flat[i][k].second, configs[i].name);
    }
    if (!all_equal(difference.values)) {
      found.push_back(std::move(difference));
    }
  }
  return found;
}

}  // namespace

std::string first_difference(const config::Config& there, const config::Config& here) {
  const KeyValues old_keys = config::flatten(there), new_keys = config::flatten(here);
  for (std::size_t i = 0; i < new_keys.size(); ++i) {
    const auto& [key, value] = new_keys[i];
    const bool filled_in = (key == "train.precision" && here.train.precision == config::Precision::automatic) ||
                           (key == "train.threads" && here.train.threads == 0);
    if (!filled_in && !is_bookkeeping(key) && old_keys[i].second != value) {
      return fmt::format("{} is {} there, {} here", key, old_keys[i].second, value);
    }
  }
  return "";
}

void refuse_tokenizers(std::string_view command, std::string_view a, std::string_view b, std::string_view tokenizer_a,
                       std::string_view tokenizer_b) {
  user_error(
      "{}: {} and {} have different tokenizers ({} and {}): their figures cannot be compared; set tokenizer.model and "
      "data.validation to the same files in both",
      command, a, b, tokenizer_a, tokenizer_b);
}

void refuse_unlike(const std::vector<NamedConfig>& configs, std::string_view command) {
  const auto task_of = [&](const NamedConfig& named) {
    return &tasks::task_for(named.config, fmt::format("{}: {}", command, named.name));
  };
  for (const NamedConfig& named : configs) {
    if (task_of(named) != task_of(configs.front())) {
      user_error("{}: {} and {} are trained for different tasks: their results cannot be compared", command,
                 configs.front().name, named.name);
    }
    const config::TokenizerKind kind = named.config.tokenizer.kind, first = configs.front().config.tokenizer.kind;
    if (kind != first && makes_tokenizer(named.config) && makes_tokenizer(configs.front().config)) {
      refuse_tokenizers(command, configs.front().name, named.name, config::name_of(first), config::name_of(kind));
    }
  }
  for (const Difference& difference : differences(configs)) {
    if (difference.key == "train.evaluate_tokens") {
      user_error("{}: {} differs: {}: figures over different data cannot be compared", command, difference.key,
                 who_has_what(difference.values));
    }
  }
}

std::vector<std::string> check_fairness(const std::vector<NamedConfig>& configs,
                                        const std::set<std::string>& expected) {
  check_names(configs);
  refuse_unlike(configs, "compare");
  return treated_unlike(configs, expected);
}

std::vector<std::string> treated_unlike(const std::vector<NamedConfig>& configs,
                                        const std::set<std::string>& expected) {
  std::vector<std::string> notes;
  ValuesAndNames budgets;
  for (const NamedConfig& named : configs) {
    const double tokens = static_cast<double>(named.config.train.steps) *
                          static_cast<double>(named.config.whole_sequences()) *
                          static_cast<double>(named.config.model.context_length);
    budgets.emplace_back(short_number(tokens) + " tokens", named.name);
  }
  if (!all_equal(budgets)) {
    notes.push_back(fmt::format("The runs are not trained on equally many tokens: {}.", who_has_what(budgets)));
  }
  for (const Difference& difference : differences(configs)) {
    if (belongs_to_training(difference.key) && !expected.contains(difference.key)) {
      notes.push_back(fmt::format("{} differs: {}.", difference.key, who_has_what(difference.values)));
    }
  }
  return notes;
}

}  // namespace headroom::compare
