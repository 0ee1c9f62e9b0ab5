#include "advice_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "foundation/core/text/format.h"
#include "sentences.h"
#include "tools/compare/compare.h"
#include "tools/compare/report/markup.h"
#include "training/tasks/task.h"

namespace headroom::compare {
namespace {

std::size_t rounds_of(const Stage& stage) {
  std::size_t most = 0;
  for (const Arm& arm : stage.arms) {
    most = std::max(most, arm.rounds.size());
  }
  return most;
}

// "15 steps", "13 to 15 steps": arms of one round take equally long, not equally many steps.
std::string steps_text(const Stage& stage, std::size_t round) {
  std::int64_t least = 0, most = 0;
  for (const Arm& arm : stage.arms) {
    if (arm.rounds.size() > round) {
      const std::int64_t steps = arm.rounds[round].steps;
      least = most == 0 ? steps : std::min(least, steps);
      most = std::max(most, steps);
    }
  }
  return least == most ? fmt::format("{} steps", most) : fmt::format("{} to {} steps", least, most);
}

// What is the same for all says nothing.
void add_where_different(AdviceTable& table, const Stage& stage, const char* name, double (*number)(const Arm&)) {
  const double first = number(stage.arms.front());
  if (std::all_of(stage.arms.begin(), stage.arms.end(), [&](const Arm& arm) { return number(arm) == first; })) {
    return;
  }
  table.head.push_back({.name = name});
  for (std::size_t i = 0; i < stage.arms.size(); ++i) {
    table.rows[i].cells.push_back(short_number(number(stage.arms[i])));
  }
}

Json json_of(const Stage& stage, const Arm& arm, std::size_t round, std::size_t index) {
  const TrainedRun& trained = arm.rounds[round].trained[index];
  Json json = {{"name", stage.name + "=" + arm.name},
               {"stage", stage.name},
               {"arm", arm.name},
               {"round", round + 1},
               {"seed", trained.seed},
               {"bits_per_byte", arm.rounds[round].scores[index]},
               {"diverged", !trained.diverged.empty()},
               {"taken", &arm == &stage.arms[stage.taken]}};
  json.update(to_json(trained.result, tasks::task_for(arm.config, "advise")));
  return json;
}

}  // namespace

AdviceTable table_of(const Stage& stage) {
  AdviceTable table{.head = {{.name = stage.title}}};
  for (const Arm& arm : stage.arms) {
    table.rows.push_back({.cells = {arm.name}, .taken = &arm == &stage.arms[stage.taken]});
  }
  add_where_different(table, stage, "parameters", [](const Arm& arm) { return static_cast<double>(arm.parameters); });
  add_where_different(table, stage, "tokens/s", tokens_per_second);
  for (std::size_t round = 0; round < rounds_of(stage); ++round) {
    table.head.push_back({.name = fmt::format("round {}", round + 1), .note = steps_text(stage, round)});
    for (std::size_t i = 0; i < stage.arms.size(); ++i) {
      const std::vector<Round>& rounds = stage.arms[i].rounds;
      table.rows[i].cells.push_back(round < rounds.size() ? score_text(rounds[round]) : "");
    }
  }
  return table;
}

std::string render_table(const Advice& advice) {
  std::string text;
  for (const Stage& stage : advice.stages) {
    const AdviceTable table = table_of(stage);
    std::vector<std::vector<std::string>> lines(1);
    for (const AdviceColumn& column : table.head) {
      lines.front().push_back(column.note.empty() ? column.name : fmt::format("{} ({})", column.name, column.note));
    }
    for (const AdviceRow& row : table.rows) {
      lines.push_back(row.cells);
      lines.back().push_back(row.taken ? "taken" : "");
    }
    lines.front().push_back("");
    std::vector<bool> left(lines.front().size(), false);
    left.front() = left.back() = true;
    text += text_table(lines, left) + "\n";
  }
  return text.empty() ? text
                      : "Bits per byte of the validation text, each round twice as long as the one before:\n\n" + text;
}

Json to_json(const Advice& advice) {
  Json runs = Json::array();
  for (const Stage& stage : advice.stages) {
    for (const Arm& arm : stage.arms) {
      for (std::size_t round = 0; round < arm.rounds.size(); ++round) {
        for (std::size_t index = 0; index < arm.rounds[round].trained.size(); ++index) {
          runs.push_back(json_of(stage, arm, round, index));
        }
      }
    }
  }
  return {{"config", config::to_toml(advice.config)},
          {"file", advice.file.string()},
          {"runs", std::move(runs)},
          {"budget_seconds", advice.budget},
          {"spent_seconds", advice.spent},
          {"parameters", advice.parameters},
          {"tokens", advice.tokens},
          {"tokens_per_second", advice.tokens_per_second},
          {"sentences", advice.sentences},
          {"report", advice.report.string()}};
}

}  // namespace headroom::compare
