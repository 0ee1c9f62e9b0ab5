#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>

#include "foundation/core/text/format.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "trial.h"

namespace headroom::trial {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRecordFile = "trials.jsonl";

std::string decision_of(const Trial& trial, const TestOptions& options) {
  const std::string pairs = counted(trial.pairs.size(), "pair");
  if (has_no_effect(trial)) {
    return fmt::format("discard: {} has no effect; both sides train to the same parameters.", trial.change);
  }
  if (!std::isfinite(trial.pairs.back().change)) {
    return fmt::format("discard: {} diverged with seed {}.", trial.change, trial.pairs.back().change_seed);
  }
  const std::string difference =
      fmt::format("{} {}{}", trial.figure.words, trial.difference.mean > 0 ? "+" : "",
                  format_decimal(trial.difference.mean, 4)) +
      (trial.pairs.size() > 1
           ? fmt::format(" [{}, {}]", format_decimal(trial.difference.low, 4), format_decimal(trial.difference.high, 4))
           : " (one pair, no interval)");
  switch (trial.decision) {
    case Decision::keep:
      return fmt::format("keep: {} is better than {}: {} over {}.", trial.change, trial.base, difference, pairs);
    case Decision::discard:
      return fmt::format("discard: {} shows no gain over {}: {} over {}.", trial.change, trial.base, difference, pairs);
    default:
      return static_cast<int>(trial.pairs.size()) < options.pairs
                 ? fmt::format("undecided: {} over {} of {}; repeat the command to continue.", difference, pairs,
                               options.pairs)
                 : fmt::format("undecided: {} over all {}.", difference, pairs);
  }
}

// Returns how many steps the runs had if the clock stopped them; else "".
std::string remark_on_steps(const Trial& trial, const config::Config& base) {
  if (base.train.seconds <= 0.0) {
    return "";
  }
  std::set<std::int64_t> steps;
  for (const Pair& pair : trial.pairs) {
    steps.insert({pair.base_steps, pair.change_steps});
  }
  return fmt::format(
      " train.seconds stopped the runs after {} to {} steps; the difference includes that of their speeds.",
      *steps.begin(), *steps.rbegin());
}

// Opens the file of trials for appending. Throws Error naming it if that is not possible.
std::ofstream open_records(const fs::path& out) {
  const fs::path file = out / kRecordFile;
  std::ofstream records(file, std::ios::app);
  if (!records) {
    fail("{}: cannot be written", file.string());
  }
  return records;
}

// Whether two lines are of the same trial with the same pairs.
bool is_same_trial(Json one, Json other) {
  for (const char* key : {"runs", "reused", "command", "finished", "program"}) {
    one.erase(key);
    other.erase(key);
  }
  return one == other;
}

}  // namespace

bool has_no_effect(const Trial& trial) {
  return std::ranges::all_of(trial.pairs, [](const Pair& pair) {  // decoding.* changes figures, not parameters
    return pair.base_sha256 == pair.change_sha256 && pair.base == pair.change;
  });
}

std::string sentence_of(const Trial& trial, const TrialRequest& request) {
  return decision_of(trial, request.test) + remark_on_steps(trial, request.base.config);
}

void require_appendable(const fs::path& out) {
  open_records(out);
}

void append_record(const Trial& trial, const TrialRequest& request) {
  Json line = to_json(trial);
  const std::string text = read_text_file(request.out / kRecordFile);
  const Json last = Json::parse(last_line(text), nullptr, /*allow_exceptions=*/false);
  if (last.is_object() && is_same_trial(last, line)) {
    return;
  }
  line["command"] = request.command;
  line["finished"] = train::utc_now();
  line["program"] = train::program_version();
  std::ofstream records = open_records(request.out);
  records << (text.empty() || text.ends_with('\n') ? "" : "\n") << to_json_line(line) << "\n" << std::flush;
  if (!records) {
    fail("{}: cannot be written", (request.out / kRecordFile).string());
  }
}

std::string render_table(const Trial& trial) {
  std::vector<std::vector<std::string>> rows = {{"seed", trial.base, trial.change, "difference"}};
  for (const Pair& pair : trial.pairs) {
    const std::string seed = pair.base_seed == pair.change_seed
                                 ? fmt::format("{}", pair.base_seed)
                                 : fmt::format("{}, {}", pair.base_seed, pair.change_seed);
    rows.push_back({seed, format_decimal(pair.base, 4), format_decimal(pair.change, 4),
                    format_decimal(pair.change - pair.base, 4)});
  }
  return text_table(rows, {true});
}

Json to_json(const Trial& trial) {
  const auto known = [](double value) { return std::isfinite(value) ? Json(value) : Json(); };
  Json json = {{"decision", config::name_of(trial.decision)},
               {"sentence", trial.sentence},
               {"base", trial.base},
               {"change", trial.change},
               {"changed", trial.changed},
               {"figure", trial.figure.name},
               {"difference",
                {{"mean", known(trial.difference.mean)},
                 {"low", known(trial.difference.low)},
                 {"high", known(trial.difference.high)}}},
               {"runs", trial.trained},
               {"reused", trial.reused},
               {"learning_rates", {trial.base_learning_rate, trial.change_learning_rate}}};
  json["pairs"] = Json::array();
  for (const Pair& pair : trial.pairs) {
    json["pairs"].push_back({{"seeds", {pair.base_seed, pair.change_seed}},
                             {"base", known(pair.base)},
                             {"change", known(pair.change)},
                             {"steps", {pair.base_steps, pair.change_steps}},
                             {"base_sha256", pair.base_sha256},
                             {"change_sha256", pair.change_sha256}});
  }
  return json;
}

}  // namespace headroom::trial
