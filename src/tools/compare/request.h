// What a comparison or a sweep is asked to do.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "headroom/config/config.h"
#include "training/parallel/gloo_group.h"
#include "training/tasks/figures.h"

namespace headroom::compare {

using config::Variation;

inline constexpr const char* kPageFile = "report.html";  // in the folder that it shows

// Keys and their values in one run, formatted as by config::flatten.
using Values = std::vector<std::pair<std::string, std::string>>;

// Whether `one` is strictly better; false if either is NaN.
inline bool is_better(const tasks::FigureKind& kind, double one, double other) {
  return kind.better == tasks::Better::higher ? one > other : one < other;
}

// The kind of command that produced a result; determines what the page shows.
enum class Kind {
  comparison,  // several models
  demo,        // the demo's three models
  sweep,       // one model with combinations of values
  run,         // a single training run
};

}  // namespace headroom::compare

namespace headroom::config {
template <>
inline constexpr EnumNames kEnumNames<compare::Kind> = {"comparison", "demo", "sweep", "run"};
}  // namespace headroom::config

namespace headroom::compare {

struct NamedConfig {
  std::string name;  // unique and without '/', because it is also the name of the run folder
  config::Config config;
  std::string family = {};  // the family of model sizes (scaling.h); empty: none
};

// Loads each config with config::load_config and names it after its file: "mine/dense_h8.toml" and
// "demo/dense_h8" both become "dense_h8". Files of the same name are prefixed with their folder's name: "a.dense",
// "b.dense".
std::vector<NamedConfig> load_configs(const std::vector<std::string>& paths_or_recipes,
                                      const std::vector<std::string>& overrides = {});

// Like load_configs(), for families of model sizes, each "NAME=CONFIG,CONFIG,...".
std::vector<NamedConfig> load_families(const std::vector<std::string>& families,
                                       const std::vector<std::string>& overrides = {});

struct CompareRequest {
  // The first config is the baseline. Families: at least two, each with at least two different amounts of training
  // compute. A sweep: one config.
  std::vector<NamedConfig> configs;
  std::int64_t seeds = 1;  // compared runs per model or combination, with consecutive seeds from train.seed on
  // A comparison tunes each model over all combinations of these values; a sweep has one run for each combination.
  std::vector<Variation> variations;
  std::filesystem::path out;         // run folders (layout: plan.h) and out/report.html
  std::filesystem::path cache;       // prepared data
  std::vector<std::string> test;     // files: test data for the compared runs; empty: none
  std::vector<std::string> prompts;  // for the sample texts; empty: the start of the validation data
  std::int64_t sample_tokens = 120;
  double budget = 0.0;  // seconds for the whole comparison, which shortens the training; 0: no limit
  std::string title = "Comparison";
  std::string about;    // description of the comparison, shown on the page
  std::string command;  // the command line, shown on the page
  Kind kind = Kind::comparison;
  parallel::GlooGroup* group = &parallel::default_group();  // ranks that train each run together
};

}  // namespace headroom::compare
