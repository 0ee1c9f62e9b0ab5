// A trial in words, as a table and as JSON, and the file of trials.
#pragma once

#include <filesystem>
#include <string>

#include "headroom/core/json.h"
#include "tools/trial/trial.h"

namespace headroom::trial {

// Whether both sides of every pair trained to the same parameters and have the same figure.
bool has_no_effect(const Trial& trial);

// Returns one sentence with the decision and the difference, and another with the steps if train.seconds ended the
// runs.
std::string sentence_of(const Trial& trial, const TrialRequest& request);

// A table of the pairs.
std::string render_table(const Trial& trial);

// `decision`, `sentence`, `base`, `change`, `changed`, `figure`, `difference` (`mean`, `low`, `high`; null if unknown),
// `pairs`, `runs` (trained), `reused`, `learning_rates`.
Json to_json(const Trial& trial);

// Throws Error naming out/trials.jsonl if it cannot be opened for appending.
void require_appendable(const std::filesystem::path& out);

// Appends a line with the trial to out/trials.jsonl, unless the last line is of the same trial with the same pairs. A
// truncated last line, left by a killed program, is not joined with the new one. Throws Error naming the file.
void append_record(const Trial& trial, const TrialRequest& request);

}  // namespace headroom::trial
