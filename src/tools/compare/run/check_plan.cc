#include "check_plan.h"

#include <fmt/format.h>

#include <map>
#include <memory>

#include "fairness.h"
#include "headroom/core/error.h"
#include "headroom/decode/generate.h"
#include "runs.h"
#include "training/train/loop/machine.h"

namespace headroom::compare {

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
    user_error("compare: --prompt: needs model.kind = \"{}\", not \"{}\"",
               config::name_of(config::ModelKind::language_model), config::name_of(config.model.kind));
  }
  for (const std::string& prompt : prompts) {
    decode::check_prompt(*tokenizer, prompt, "compare: --prompt");
  }
}

// What a run's figures are measured on.
struct Measure {
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer;
  std::string tokenizer_name, validation;  // identities; a task without text has no tokenizer
};

Measure open_measure(const config::Config& config, const tasks::Task& task, const std::filesystem::path& cache) {
  const tasks::TaskData data = task.open(config, cache);
  return {.tokenizer = data.tokenizer,
          .tokenizer_name = data.tokenizer ? data.tokenizer->name() : "",
          .validation = data.validation->identity()};
}

struct NamedMeasure {
  std::string name;
  const Measure* measure = nullptr;
};

void refuse_unlike(const NamedMeasure& a, const NamedMeasure& b, std::string_view command) {
  if (a.measure->tokenizer_name != b.measure->tokenizer_name) {
    refuse_tokenizers(command, a.name, b.name, a.measure->tokenizer_name, b.measure->tokenizer_name);
  }
  if (a.measure->validation != b.measure->validation) {
    user_error(
        "{}: {} and {} have different validation data ({} and {}): their figures cannot be compared; set "
        "data.validation to the same files in both",
        command, a.name, b.name, a.measure->validation, b.measure->validation);
  }
}

}  // namespace

void check_runs(const Plan& plan, const std::vector<std::string>& prompts, const tasks::Task& task,
                const std::filesystem::path& cache) {
  std::map<std::string, Measure> opened;  // by data_keys()
  NamedMeasure first;
  for (const PlannedModel& model : plan.models) {
    for (const PlannedRun& choice : model.choices) {
      train::check_machine(choice.config);
    }
  }
  for (const PlannedModel& model : plan.models) {
    for (const PlannedRun& choice : model.choices) {
      const auto [entry, is_new] = opened.try_emplace(data_keys(choice.config));
      const Measure& measure = entry->second;
      if (is_new) {
        entry->second = open_measure(choice.config, task, cache);
      }
      if (first.measure == nullptr) {
        first = {.name = name_of(model, choice), .measure = &measure};
      }
      refuse_unlike(first, {.name = name_of(model, choice), .measure = &measure}, plan.command);
      train::with_vocabulary_of(choice.config, measure.tokenizer.get());
      check_prompts(choice.config, measure.tokenizer.get(), prompts);
    }
  }
}

}  // namespace headroom::compare
