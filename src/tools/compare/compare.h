// Trains several models, or one model with several values, under the same budget and says, in a table, a page and a
// sentence, how they compare.
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tools/compare/figures/compared_run.h"

namespace headroom::compare {

struct NamedConfig {
  std::string name;  // also its run folder's name: no '/', unique
  config::Config config;
  std::string family = {};  // of which it is one size (scaling.h); empty: of none
};

// config::load_config for each, named by file ("recipes/demo/dense_h8.toml" and "demo/dense_h8" are "dense_h8";
// files of one name in several folders keep what distinguishes them: "a.dense", "b.dense").
std::vector<NamedConfig> load_configs(const std::vector<std::string>& paths_or_recipes,
                                      const std::vector<std::string>& overrides = {});

// The same for families of sizes, each "NAME=CONFIG,CONFIG,...".
std::vector<NamedConfig> load_families(const std::vector<std::string>& families,
                                       const std::vector<std::string>& overrides = {});

struct CompareRequest {
  // The others are measured against the first. Families, where there are any: at least two, each with at least two
  // different amounts of training compute.
  std::vector<NamedConfig> configs;
  std::int64_t seeds = 1;            // trainings of each: with train.seed, train.seed + 1, ...
  std::vector<Variation> tune;       // each model takes its own best of all combinations of these
  std::filesystem::path out;         // for the runs, as plan.h lays them out, and out/report.html
  std::filesystem::path cache;       // prepared data
  std::vector<std::string> prompts;  // of the sample texts; none: the beginning of the validation data
  std::int64_t sample_tokens = 120;
  double sample_temperature = 0.8;
  std::uint64_t sample_seed = 1;
  std::string title = "Comparison";
  std::string about;    // sentences on what is compared, shown on the page
  std::string command;  // how this comparison was asked for, shown on the page
  Kind kind = Kind::comparison;
  parallel::GlooGroup* group = nullptr;  // those that train each run together; null: this process alone
};

struct SweepRequest {
  NamedConfig config;
  std::vector<Variation> vary;  // a run for every combination of their values
  std::int64_t seeds = 1;       // trainings of each
  std::filesystem::path out, cache;
  std::string command;
  parallel::GlooGroup* group = nullptr;
};

// First every model is trained with its first seed, with each combination of tuned values, and keeps the one whose last
// validation has the best headline figure; then all models with the second seed, and so on. Of one seed, all models see
// the data in the same order. Runs that have finished in `out` are kept (result.json in their folder), an unfinished
// one is resumed from its newest checkpoint; more seeds or values use what is there. Throws UserError for no or
// ill-named configs, for keys and values that cannot be tuned, for runs that cannot be compared (their figures are of
// different tasks, texts or tokens), and for a folder that holds a run of another configuration. A loss that stops
// being finite is the result's `failure`, unless it is that of a tuned value, which is then not chosen. Families are
// compared by the compute that they need for a loss.
CompareResult compare(const CompareRequest& request);

// Trains `config` with every combination of the values, all with the first seed, then all with the second, and so on,
// and keeps and resumes runs as compare() does. A run that diverges comes last in the table.
CompareResult sweep(const SweepRequest& request);

// The page of a comparison, a sweep or a training run again, from what is in its folder: nothing is trained. Of one
// that is not finished, the runs that are. Throws UserError for a folder that holds none of the three, or no finished
// run.
CompareResult report(const std::filesystem::path& folder);

// The same while something in the folder is being trained: the page is written again whenever something was logged, and
// loads itself again in a browser. Ends, with a last page, when the training does or on Ctrl-C (`interrupted`, after
// catch_interrupts()). Where nothing is being trained it is report().
CompareResult watch(const std::filesystem::path& folder);

// What keeps figures from being compared is a UserError; other differences of data, budget and training are
// returned as sentences, apart from those of the keys in `expected`.
std::vector<std::string> check_fairness(const std::vector<NamedConfig>& configs,
                                        const std::set<std::string>& expected = {});

// Which run has the best headline figure, by how much, and at what cost compared with the first run (or, if the first
// is best, the next best compared with it). With several seeds a difference is only claimed where its 95% interval
// excludes zero.
Conclusion conclude(const std::vector<ComparedRun>& runs);

// The same for a sweep's runs, best first.
Conclusion conclude_sweep(const std::vector<ComparedRun>& runs);

// Aligned plain text, a line a run, relative figures against the first run's.
std::string render_table(const CompareResult& result);

// Likewise the families' models with their compute, a line each; empty where there are no families.
std::string render_scaling(const CompareResult& result);

// The page: self-contained HTML without scripts.
std::string render_report(const CompareResult& result);

// The keys of `train`, and the task's figures.
Json to_json(const train::TrainResult& result, const tasks::Task& task);

// `runs`: for each model name, the keys of `train` and the task's headline figure (of the first seed), `seeds` (each
// seed with the keys of `train`), `<figure>_mean` and `<figure>_std` over the seeds, `difference` (of the validation
// loss against the first model, paired by seed: mean, low, high; null for the first and for one seed),
// `<headline>_difference`, `values` (of tuned or varied keys), `tried`, attention_macs, attention_memory, executed,
// samples; then `notes`, `conclusion` (its points as one text), `report`; with families `scaling`, what scaling.h says
// of each.
Json to_json(const CompareResult& result);

}  // namespace headroom::compare
