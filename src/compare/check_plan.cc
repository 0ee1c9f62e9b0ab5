#include "check_plan.h"

#include <fmt/format.h>

#include <map>
#include <memory>

#include "fairness.h"
#include "headroom/core/error.h"
#include "headroom/decode/generate.h"
#include "headroom/train/machine.h"
#include "runs.h"

namespace headroom::compare {

void check_choices(const Plan& plan) {
  std::vector<NamedConfig> all;
  for (const PlannedModel& model : plan.models) {
    for (const PlannedRun& choice : model.choices) {
      const bool tuned = model.choices.size() > 1;
      all.push_back(
          {tuned ? fmt::format("{} with {}", model.name, describe(choice.values)) : model.name, choice.config});
    }
  }
  refuse_unlike(all, plan.command);
}

void check_folders(const Plan& plan) {
  for (const PlannedModel& model : plan.models) {
    for (const PlannedRun& choice : model.choices) {
      for (std::int64_t index = 0; index < plan.seeds; ++index) {
        check_folder(with_seed(choice, index));
      }
    }
  }
}

namespace {

// What decides which data a run reads.
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
    misuse("compare: --prompt: needs model.kind = \"{}\", not \"{}\"",
           config::name_of(config::ModelKind::language_model), config::name_of(config.model.kind));
  }
  for (const std::string& prompt : prompts) {
    decode::check_prompt(*tokenizer, prompt, "compare: --prompt");
  }
}

}  // namespace

void check_runs(const Plan& plan, const std::vector<std::string>& prompts, const tasks::Task& task,
                const std::filesystem::path& cache) {
  std::map<std::string, std::shared_ptr<const tokenizers::Tokenizer>> tokenizers;  // of the data that was opened
  for (const PlannedModel& model : plan.models) {
    for (const PlannedRun& choice : model.choices) {
      train::check_machine(choice.config);
    }
  }
  for (const PlannedModel& model : plan.models) {
    for (const PlannedRun& choice : model.choices) {
      const auto [entry, is_new] = tokenizers.try_emplace(data_keys(choice.config));
      if (is_new) {
        entry->second = task.open(choice.config, cache).tokenizer;
      }
      train::with_vocabulary_of(choice.config, entry->second.get());
      check_prompts(choice.config, entry->second.get(), prompts);
    }
  }
}

}  // namespace headroom::compare
