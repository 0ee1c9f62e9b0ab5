// Trains several models, or one model with several values of its keys, under the same budget, and compares them in a
// table, on a page and in a few sentences.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "request.h"
#include "tools/compare/figures/result.h"

namespace headroom::compare {

inline constexpr const char* kLookupFolder = "lookups";  // in the demo's folder

// Trains every model with its first seed and every combination of tuned values, and selects the combination with the
// best headline figure (TrainResult::figures()). Then trains all models with the second seed, and so on. If several
// seeds are compared, the seed that selects the values is not one of them, because the luck of a selected run would
// make its model look better than it is. Runs with the same seed see the data in the same order. Finished runs in `out`
// (with a result.json) are reused and unfinished ones resume from their newest checkpoint, so seeds and values can be
// added later. With request.budget, all models are trained for fewer steps (set_steps_within()). A run that diverges
// sets the result's `failure`; during tuning, its values are only excluded. Families are compared by the compute they
// need to reach a loss. Throws UserError for missing or invalid config names, for keys and values that cannot be tuned,
// for runs that cannot be compared (different task, text or tokenizer), and for a folder that contains a run of another
// configuration.
CompareResult compare(const CompareRequest& asked);

// Trains the config with every combination of values: all with the first seed, then all with the second, and so on.
// Reuses and resumes runs like compare(). The result is sorted, best first; diverged runs come last.
CompareResult sweep(const CompareRequest& request);

// The demo: compares demo_configs(overrides), which `request` leaves out, on the built-in corpus: SwitchHead with 2
// attention matrices per layer against dense Transformer-XLs of the same size with 8 and with 2. Then compares the
// small/lookup_* models of three layers on look-ups, which show the benefit of more heads, in out/lookups. Unless
// `overrides` set train.steps, a single rank gives the language models as many steps as keep the whole below ten
// minutes on this machine, between 300 and the recipes' 700. Throws what compare() throws.
CompareResult demo(CompareRequest request, const std::vector<std::string>& overrides);

// The demo's models: recipes/demo/dense_h8, dense_h2 and switchhead_h2. cost::match chooses the sizes of the last two
// so that they have as many parameters as the first.
std::vector<NamedConfig> demo_configs(const std::vector<std::string>& overrides = {});

// Whether the folder contains a comparison, a sweep or a single training run.
bool has_page(const std::filesystem::path& folder);

// Adds a sample text of a single run's newest checkpoint, unless the run has logged samples.
void add_sample(CompareResult& result);

// Writes the page of such a folder (empty: report.html in it) from the files in the folder, without training. Omits
// unfinished runs of a comparison. Throws UserError if the folder contains none of these, or no finished run.
CompareResult report(const std::filesystem::path& folder, const std::filesystem::path& page = {});

// Like report(), but rewrites the page whenever new values have been logged, and makes it reload itself in the browser.
// Returns when training in the folder ends, or on Ctrl-C with `interrupted` set (after catch_interrupts()).
CompareResult watch(const std::filesystem::path& folder);

// Returns the folders without those that are named a second time, with a warning for each.
std::vector<std::filesystem::path> distinct_folders(const std::vector<std::filesystem::path>& folders);

// Compares existing runs, one per folder, without training or writing. Adds notes on unfinished runs and on missing
// records. Throws UserError for a folder that is not a run, and for runs whose figures cannot be compared.
CompareResult overlay(const std::vector<std::filesystem::path>& folders, const std::string& command);

// Returns the runs in the folder and its subfolders, sorted by path and named by it. Leaves out unreadable runs with a
// warning. Throws UserError if there is no run.
std::vector<ComparedRun> list_runs(const std::filesystem::path& folder);

// Returns aligned plain text with one line per run; relative figures are relative to the first run.
std::string render_table(const CompareResult& result);

// Returns aligned plain text with one line per model of the families; empty without families.
std::string render_scaling(const CompareResult& result);

// Returns aligned plain text with one line per run of list_runs().
std::string render_runs(const std::vector<ComparedRun>& runs);

// Returns the document of the page, for draw::block_page().
Json page_of(const CompareResult& result);
// Writes the page and sets result.report.
void write_page(CompareResult& result, const std::filesystem::path& file);

// `runs`, for each model: name, the keys of `train` and the task's headline figure (first seed), `seeds` (the keys of
// `train` for each seed), `<figure>_mean` and `<figure>_std` over the seeds, `difference` (paired difference of the
// validation loss from the first model: mean, low, high; null for the first model and for a single seed),
// `<headline>_difference`, `test_<figure>_mean` and `_std` (with test data; `test_<figure>` in each of the `seeds`),
// `effective_speedup` (of the training time: loss, ratio, low, high; `tokens`: the same of the tokens; null for the
// first model and if unknown), `values` (of tuned or varied keys), `tried`, attention_macs, attention_memory, executed,
// samples. Then `notes`, `conclusion` (all sentences as one text), `report`, and `scaling` if there are families.
Json to_json(const CompareResult& result);

// For each run of list_runs(): name, folder, the keys of `train`, the task's headline figure, steps_wanted, diverged;
// finished, command, machine and program, null if unknown.
Json to_json(const std::vector<ComparedRun>& runs);

}  // namespace headroom::compare
