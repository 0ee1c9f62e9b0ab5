#include "checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <tuple>

#include "comparison_file.h"
#include "data/text/text.h"
#include "execution.h"
#include "foundation/core/transformed.h"
#include "headroom/core/error.h"
#include "headroom/decode/generate.h"
#include "tools/compare/statistics.h"
#include "training/train/loop/start.h"
#include "training/train/step/teacher.h"

namespace headroom::compare {
namespace {

using ValuesAndNames = std::vector<std::pair<std::string, std::string>>;

// Whether the run trains its tokenizer on text, so that tokenizer.kind determines its kind.
bool makes_tokenizer(const config::Config& config) {
  const auto none = [](const std::vector<std::string>& files) {
    return std::ranges::none_of(files, config::is_token_file);
  };
  return !config.model.has_classes() && config.tokenizer.model.empty() && none(config.data.train) &&
         none(config.data.validation);
}

// Whether a trained tokenizer depends on the key.
bool determines_tokenizer(const std::string& key, const std::vector<NamedConfig>& configs) {
  return key.starts_with("tokenizer.") && !key.ends_with("model") &&
         std::ranges::all_of(configs, [](const NamedConfig& named) {
           return makes_tokenizer(named.config) && named.config.tokenizer.kind != config::TokenizerKind::bytes;
         });
}

bool reads_built_in_corpus(const config::DataOptions& data) {
  return data.train.empty() && data.validation.empty() && data.mixture.empty() &&
         data.generator == config::Generator::none && data.synthetic == config::Synthetic::none;
}

bool belongs_to_training(const std::string& key) {
  return (key.starts_with("train.") && !is_bookkeeping(key)) || key.starts_with("data.") ||
         key.starts_with("tokenizer.") || key.starts_with("decoding.") || key.starts_with("model.initialisation") ||
         key == "model.embedding_std" || key == "model.context_length" || key == "model.memory_length";
}

// Returns "0.001 (a, c), 0.0005 (b)"; replaces long lists of names by "3 runs".
std::string group_by_value(const ValuesAndNames& value_and_name) {
  constexpr std::size_t kMostCharacters = 60;
  std::vector<std::pair<std::string, std::vector<std::string>>> groups;
  for (const auto& [value, name] : value_and_name) {
    auto group = std::ranges::find_if(groups, [&](const auto& g) { return g.first == value; });
    if (group == groups.end()) {
      group = groups.insert(groups.end(), {value, {}});
    }
    group->second.push_back(name);
  }
  std::vector<std::string> parts;
  for (const auto& [value, names] : groups) {
    const std::string list = fmt::format("{}", fmt::join(names, ", "));
    parts.push_back(
        fmt::format("{} ({})", value.empty() ? "\"\"" : value,
                    names.size() > 1 && list.size() > kMostCharacters ? counted(names.size(), "run") : list));
  }
  return enumerated(parts);
}

bool all_equal(const ValuesAndNames& value_and_name) {
  return std::ranges::all_of(value_and_name,
                             [&](const auto& entry) { return entry.first == value_and_name.front().first; });
}

}  // namespace

std::vector<Difference> differences(const std::vector<NamedConfig>& configs) {
  std::vector<Values> flat =
      transformed(configs, [&](const NamedConfig& named) { return config::flatten(named.config); });
  std::vector<Difference> found;
  for (std::size_t k = 0; k < flat.front().size(); ++k) {
    Difference difference{flat.front()[k].first, {}};
    for (std::size_t i = 0; i < configs.size(); ++i) {
      difference.values.emplace_back(flat[i][k].second, configs[i].name);
    }
    const std::string& key = difference.key;
    if (key != "train.threads" && key != "train.precision" && key != "train.checkpoint_every" &&
        !all_equal(difference.values)) {
      found.push_back(std::move(difference));
    }
  }
  return found;
}

namespace {

[[noreturn]] void refuse_tokenizers(std::string_view command, std::string_view a, std::string_view b,
                                    std::string_view tokenizer_a, std::string_view tokenizer_b) {
  user_error(
      "{}: {} and {} have different tokenizers ({} and {}), so their figures cannot be compared; set tokenizer.model "
      "and data.validation to the same files in both",
      command, a, b, tokenizer_a, tokenizer_b);
}

}  // namespace

bool is_bookkeeping(const std::string& key) {
  static const std::set<std::string> kKeys = {
      "train.log_every", "train.checkpoint_every", "train.keep_checkpoints", "train.evaluate_every",
      "train.keep_best", "train.sample_every",     "train.sample_prompt"};
  return kKeys.contains(key);
}

std::string first_difference(const config::Config& there, const config::Config& here) {
  const Values old_keys = config::flatten(there), new_keys = config::flatten(train::as_resumed(here, there));
  for (std::size_t i = 0; i < new_keys.size(); ++i) {
    const auto& [key, value] = new_keys[i];
    const bool is_automatic = key == "train.threads" && here.train.threads == 0;
    if (!is_automatic && !is_bookkeeping(key) && old_keys[i].second != value) {
      return fmt::format("{} is {} there, {} here", key, old_keys[i].second, value);
    }
  }
  return "";
}

void check_names(const std::vector<NamedConfig>& configs) {
  if (configs.empty()) {
    user_error("compare: needs at least one config");
  }
  std::set<std::string> names;
  for (const NamedConfig& named : configs) {
    if (named.name.empty() || named.name.front() == '.' || named.name.find('/') != std::string::npos ||
        named.name == kPageFile || named.name == kRecordFile) {
      user_error("compare: \"{}\" cannot name a run; choose a file name that makes a visible folder", named.name);
    }
    if (!names.insert(named.name).second) {
      user_error("compare: two configs are named {}; give them different file names", named.name);
    }
  }
}

void check_comparable(const std::vector<NamedConfig>& configs, std::string_view command) {
  const auto task_of = [&](const NamedConfig& named) {
    return &tasks::task_for(named.config, fmt::format("{}: {}", command, named.name));
  };
  for (const NamedConfig& named : configs) {
    if (task_of(named) != task_of(configs.front())) {
      user_error("{}: {} and {} are trained for different tasks, so their figures cannot be compared", command,
                 configs.front().name, named.name);
    }
    const config::TokenizerKind kind = named.config.tokenizer.kind, first = configs.front().config.tokenizer.kind;
    if (kind != first && makes_tokenizer(named.config) && makes_tokenizer(configs.front().config)) {
      refuse_tokenizers(command, configs.front().name, named.name, config::name_of(first), config::name_of(kind));
    }
    if (reads_built_in_corpus(named.config.data) != reads_built_in_corpus(configs.front().config.data)) {
      const auto name = [](const NamedConfig& of) {
        return data::corpus_name(of.config.data, data::Split::validation);
      };
      check_same_data({configs.front().name, {.validation = name(configs.front())}},
                      {named.name, {.validation = name(named)}}, command);
    }
  }
  for (const Difference& difference : differences(configs)) {
    if (difference.key == "train.evaluate_tokens" || determines_tokenizer(difference.key, configs)) {
      user_error("{}: {} differs, {}, so the figures cannot be compared; set it to the same value in all configs",
                 command, difference.key, group_by_value(difference.values));
    }
  }
}

std::vector<std::string> training_differences(const std::vector<NamedConfig>& configs,
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
    notes.push_back(fmt::format("The runs are trained on different numbers of tokens: {}.", group_by_value(budgets)));
  }
  for (const Difference& difference : differences(configs)) {
    if (belongs_to_training(difference.key) && !expected.contains(difference.key)) {
      notes.push_back(fmt::format("{} differs: {}.", difference.key, group_by_value(difference.values)));
    }
  }
  return notes;
}

namespace {

std::string name_of(const PlannedModel& model, const PlannedRun& choice) {
  return model.choices.size() > 1 ? fmt::format("{} with {}", model.name, describe(choice.values)) : model.name;
}

}  // namespace

void check_choices(const Plan& plan) {
  std::vector<NamedConfig> all;
  for (const PlannedModel& model : plan.models) {
    for (const PlannedRun& choice : model.choices) {
      all.push_back({name_of(model, choice), choice.config});
    }
  }
  check_comparable(all, plan.command);
}

void check_folders(const Plan& plan) {
  for (const PlannedModel& model : plan.models) {
    for (const PlannedRun& choice : model.choices) {
      for (std::int64_t index = 0; index < plan.end_index(); ++index) {
        check_folder(with_seed(choice, index));
      }
    }
  }
}

namespace {

// Returns the keys that determine which data a run reads, with their values.
std::string data_keys(const config::Config& config) {
  std::string keys;
  for (const auto& [key, value] : config::flatten(config)) {
    if (key.starts_with("data.") || key.starts_with("tokenizer.") || key == "model.vocabulary_size" ||
        key == "model.source_vocabulary_size") {
      keys += fmt::format("{} = {}\n", key, value);
    }
  }
  return keys;
}

void check_prompts(const config::Config& config, const tokenizers::Tokenizer* tokenizer,
                   const std::vector<std::string>& prompts) {
  if (config.train.sample_every > 0 && !config.train.sample_prompt.empty()) {
    decode::check_prompt(*tokenizer, config.train.sample_prompt, "train.sample_prompt");
  }
  if (prompts.empty()) {
    return;
  }
  if (config.model.kind != config::ModelKind::language_model || tokenizer == nullptr) {
    user_error("compare: --prompt: needs model.kind = \"{}\", got \"{}\"",
               config::name_of(config::ModelKind::language_model), config::name_of(config.model.kind));
  }
  for (const std::string& prompt : prompts) {
    decode::check_prompt(*tokenizer, prompt, "compare: --prompt");
  }
}

struct OpenedData {
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer;
  train::RunData identity;
};

OpenedData open_data(const config::Config& config, const tasks::Task& task, const std::filesystem::path& cache) {
  const tasks::TaskData data = task.open(config, cache);
  return {.tokenizer = data.tokenizer, .identity = train::run_data(data)};
}

}  // namespace

void check_same_data(const NamedData& a, const NamedData& b, std::string_view command) {
  if (a.data.tokenizer != b.data.tokenizer) {
    refuse_tokenizers(command, a.name, b.name, a.data.tokenizer, b.data.tokenizer);
  }
  if (a.data.validation != b.data.validation) {
    user_error(
        "{}: {} and {} have different validation data ({} and {}), so their figures cannot be compared; set "
        "data.validation to the same files in both",
        command, a.name, b.name, a.data.validation, b.data.validation);
  }
}

void check_unchanged_data(const std::filesystem::path& folder, const train::RunData& now) {
  const train::RunData was = train::recorded_origin(folder).data;
  for (const auto& [key, there, here] :
       {std::tuple("training", was.training, now.training), std::tuple("validation", was.validation, now.validation)}) {
    if (!there.empty() && there != here) {
      user_error(
          "{}: holds a run with other {} data ({}) than there is now ({}); restore the data, or choose another folder",
          folder.string(), key, there, here);
    }
  }
}

namespace {

// Returns a text of all settings that a teacher depends on.
std::string teacher_keys(const config::Config& config, const tokenizers::Tokenizer* tokenizer) {
  return fmt::format("{} {} {} {} {} {}", config.train.teacher, config.train.teacher_sha256,
                     config::name_of(config.model.kind), config.model.vocabulary_size, config.model.context_length,
                     tokenizer == nullptr ? "" : tokenizer->name());
}

}  // namespace

train::RunData check_runs(const Plan& plan, const std::vector<std::string>& prompts, const tasks::Task& task,
                          const std::filesystem::path& cache) {
  std::map<std::string, OpenedData> opened;  // keyed by data_keys()
  std::set<std::string> teachers;            // by teacher_keys()
  std::optional<NamedData> first;
  for (const PlannedModel& model : plan.models) {
    for (const PlannedRun& choice : model.choices) {
      train::check_machine(choice.config);
      train::require_data_files(choice.config.data);  // before the first text is encoded
    }
  }
  for (const PlannedModel& model : plan.models) {
    for (const PlannedRun& choice : model.choices) {
      const auto [entry, is_new] = opened.try_emplace(data_keys(choice.config));
      if (is_new) {
        entry->second = open_data(choice.config, task, cache);
      }
      const OpenedData& data = entry->second;
      const NamedData named{.name = name_of(model, choice), .data = data.identity};
      check_same_data(first ? *first : first.emplace(named), named, plan.command);
      for (std::int64_t index = 0; index < plan.end_index(); ++index) {
        check_unchanged_data(with_seed(choice, index).folder, data.identity);
      }
      const config::Config config = train::with_vocabulary_of(choice.config, data.tokenizer.get());
      if (teachers.insert(teacher_keys(config, data.tokenizer.get())).second) {
        train::open_teacher(config, data.tokenizer.get(), at::kCPU);
      }
      check_prompts(choice.config, data.tokenizer.get(), prompts);
    }
  }
  return first->data;
}

}  // namespace headroom::compare
