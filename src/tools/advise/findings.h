// The findings of the advice: sentences, a table per stage, and the advised config as a file.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "advise.h"
#include "headroom/config/config.h"
#include "tools/compare/report/sections.h"

namespace headroom::advise {

// A score with three decimals, or three significant digits if it is below 0.1.
std::string short_score(double score);

// Describes the result of a stage. `preference` explains the choice if the finalists could not be separated: "longer
// runs want lower rates".
std::string stage_sentence(const Stage& stage, std::string_view preference);

// The inputs that determine the size, the batch and the length of the run.
struct FitSummary {
  double rate = 0.0;         // tokens per second with the requested config and the trial vocabulary
  double text_tokens = 0.0;  // in the training data, with the advised vocabulary
  bool generated = false;    // data.synthetic: the training rows are generated
  bool repeats = true;       // false: rows are generated without end
  double size_factor = 1.0;  // width of the advised model relative to the config
  double macs = 0.0;         // forward multiply-accumulates per token of the advised model
  bool size_kept = false, batch_kept = false;
  bool size_limited = false;  // pilot runs of a larger model would not fit the budget
};
std::vector<std::string> advice_sentences(const Advice& advice, const FitSummary& fit);

// Returns the command that trains the advised config.
std::string train_command(const Advice& advice);

// Measured before the pilot runs.
double tokens_per_second(const Candidate& candidate);

// "1.234 ± 0.005", or "diverged".
std::string score_text(const Round& round);

// One row per candidate: its name, its parameters and tokens per second if these differ between candidates, and its
// score in each round, empty if it did not take part.
compare::Table table_of(const Stage& stage);

// Writes `config` as a file that names the file or recipe `source` as its base and sets only what differs. Writes the
// complete config if that would not reproduce it. `remark`: comment lines at the top.
void write_advised(const config::Config& config, const std::string& source, const std::string& remark,
                   const std::filesystem::path& file);

}  // namespace headroom::advise
