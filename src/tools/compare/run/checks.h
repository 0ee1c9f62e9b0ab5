// Checks before training starts: which configs can be compared, and whether the folders match the plan.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "plan.h"
#include "tools/compare/request.h"
#include "training/tasks/task.h"
#include "training/train/record/run_folder.h"

namespace headroom::compare {

// Whether the key only controls how often something is written or measured, which does not affect the trained
// parameters.
bool is_bookkeeping(const std::string& key);

// Describes the first key in which a run folder's config differs from the requested one: "train.steps is 1000 there,
// 200 here"; empty if none does. Ignores keys that a run sets by itself (precision "auto", threads 0, the
// teacher's hash) and keys that only control how often something is written.
std::string first_difference(const config::Config& there, const config::Config& here);

// Throws UserError unless the names are unique and can name folders in a comparison's folder.
void check_names(const std::vector<NamedConfig>& configs);

// Throws UserError if the configs alone show that their figures cannot be compared: different tasks, different kinds of
// tokenizers trained on text, the built-in corpus in some only, or different train.evaluate_tokens. The message begins
// with `command`. check_runs() compares the data itself.
void check_comparable(const std::vector<NamedConfig>& configs, std::string_view command);

struct NamedData {
  std::string name;
  train::RunData data;
};

// Throws UserError if two runs have different tokenizers or validation data.
void check_same_data(const NamedData& a, const NamedData& b, std::string_view command);

// Throws UserError if the folder holds a run of other training or validation data than `now`: a file has changed since.
void check_unchanged_data(const std::filesystem::path& folder, const train::RunData& now);

// A key in which configs differ, with the value and the name of each config.
struct Difference {
  std::string key;
  std::vector<std::pair<std::string, std::string>> values;
};

// Returns the keys in which the configs differ, except for keys that "auto" sets by the machine (threads, precision,
// time between checkpoints): the description of a run's machine has these.
std::vector<Difference> differences(const std::vector<NamedConfig>& configs);

// Returns the other differences in data, budget and training as sentences, except for the keys in `expected`.
std::vector<std::string> training_differences(const std::vector<NamedConfig>& configs,
                                              const std::set<std::string>& expected = {});

// Calls check_comparable() on all choices of all models of the plan.
void check_choices(const Plan& plan);

// Throws UserError if a folder of the plan contains a run of another configuration.
void check_folders(const Plan& plan);

// Throws UserError for any other problem that would stop a run: its device and memory, its data, its prompts, its
// initial parameters, or its teacher. All runs must have the same tokenizer and the same validation data, and existing
// runs must have been trained on the same data as now. Returns the first run's data.
train::RunData check_runs(const Plan& plan, const std::vector<std::string>& prompts, const tasks::Task& task,
                          const std::filesystem::path& cache);

}  // namespace headroom::compare
