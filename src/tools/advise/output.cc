// The output of advise: tables, JSON, page, and the advised config.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "findings.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/text/format.h"
#include "foundation/core/transformed.h"
#include "foundation/draw/charts.h"
#include "foundation/draw/page.h"
#include "foundation/draw/svg.h"
#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/core/json.h"
#include "tools/compare/compare.h"
#include "tools/compare/figures/statistics.h"
#include "tools/compare/report/formatting.h"
#include "tools/compare/report/sections.h"
#include "tools/compare/run/run_folder.h"
#include "training/tasks/task.h"

namespace headroom::advise {

namespace {

std::size_t rounds_of(const Stage& stage) {
  return max_over(
      stage.candidates, [](const Candidate& candidate) { return candidate.rounds.size(); }, std::size_t{0});
}

// Returns "15 steps", or "13 to 15 steps": candidates of a round are trained for equal time, not for equal steps.
std::string steps_text(const Stage& stage, std::size_t round) {
  std::int64_t least = 0, most = 0;
  for (const Candidate& candidate : stage.candidates) {
    if (candidate.rounds.size() > round) {
      const std::int64_t steps = candidate.rounds[round].steps;
      least = most == 0 ? steps : std::min(least, steps);
      most = std::max(most, steps);
    }
  }
  return least == most ? fmt::format("{} steps", most) : fmt::format("{} to {} steps", least, most);
}

// Adds a column unless its number is the same for all candidates.
void add_where_different(compare::Table& table, const Stage& stage, const char* name,
                         double (*number)(const Candidate&)) {
  const double first = number(stage.candidates.front());
  if (std::ranges::all_of(stage.candidates, [&](const Candidate& candidate) { return number(candidate) == first; })) {
    return;
  }
  table.columns.push_back({.name = name});
  for (std::size_t i = 0; i < stage.candidates.size(); ++i) {
    table.rows[i].push_back({.text = compare::short_number(number(stage.candidates[i]))});
  }
}

// The text as the start of a heading: "Bits per byte".
std::string heading(std::string text) {
  text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

Json json_of(const Stage& stage, const Candidate& candidate, std::size_t round, std::size_t index) {
  const compare::TrainedRun& trained = candidate.rounds[round].trained[index];
  Json json = {{"name", stage.name + "=" + candidate.name},
               {"stage", stage.name},
               {"arm", candidate.name},
               {"round", round + 1},
               {"seed", trained.seed},
               {stage.measure.figure, candidate.rounds[round].scores[index]},
               {"diverged", !trained.diverged.empty()},
               {"taken", &candidate == &stage.candidates[stage.taken]}};
  json.update(compare::to_json(trained.result, tasks::task_for(candidate.config, "advise")));
  return json;
}

}  // namespace

compare::Table table_of(const Stage& stage) {
  compare::Table table{.columns = {{.name = stage.title, .words = true}}, .rows = {}};
  for (const Candidate& candidate : stage.candidates) {
    table.rows.push_back({{.text = candidate.name}});
  }
  add_where_different(table, stage, "parameters",
                      [](const Candidate& candidate) { return static_cast<double>(candidate.parameters); });
  add_where_different(table, stage, "tokens/s", tokens_per_second);
  for (std::size_t round = 0; round < rounds_of(stage); ++round) {
    table.columns.push_back({.above = fmt::format("round {}", round + 1), .name = steps_text(stage, round)});
    for (std::size_t i = 0; i < stage.candidates.size(); ++i) {
      const std::vector<Round>& rounds = stage.candidates[i].rounds;
      table.rows[i].push_back({.text = round < rounds.size() ? score_text(rounds[round]) : "",
                               .best = i == stage.taken && round + 1 == rounds.size()});
    }
  }
  table.columns.push_back({.words = true, .medium = compare::Medium::terminal});
  for (std::size_t i = 0; i < stage.candidates.size(); ++i) {
    table.rows[i].push_back({.text = i == stage.taken ? "taken" : ""});
  }
  return table;
}

std::string render_table(const Advice& advice) {
  std::string text;
  for (const Stage& stage : advice.stages) {
    text += compare::text_of(table_of(stage)) + "\n";
  }
  return text.empty() ? text
                      : fmt::format("{} of the {}, each round twice as long as the one before:\n\n{}",
                                    heading(advice.measure.unit), advice.measure.data, text);
}

Json to_json(const Advice& advice) {
  Json runs = Json::array();
  for (const Stage& stage : advice.stages) {
    for (const Candidate& candidate : stage.candidates) {
      for (std::size_t round = 0; round < candidate.rounds.size(); ++round) {
        for (std::size_t index = 0; index < candidate.rounds[round].trained.size(); ++index) {
          runs.push_back(json_of(stage, candidate, round, index));
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

namespace {

// The scores of each round, one line per round, over the candidates.
draw::LineChart stage_chart(const Stage& stage) {
  draw::LineChart chart{.title = heading(stage.measure.unit) + ": " + stage.title, .x_label = stage.title};
  std::vector<draw::Line> rounds;
  constexpr std::size_t kRoom = 5, kNameLength = 16;  // names, and characters per name, that fit on a phone's screen
  const std::size_t every = stage.candidates.size() > kRoom ? 2 : 1;
  for (std::size_t place = 0; place < stage.candidates.size(); ++place) {
    const Candidate& candidate = stage.candidates[place];
    chart.x_names.push_back(place % every == stage.taken % every ? compare::shorten(candidate.name, kNameLength) : "");
    for (std::size_t round = 0; round < candidate.rounds.size(); ++round) {
      if (rounds.size() <= round) {
        rounds.push_back({.name = fmt::format("round {}", round + 1), .style = round});
      }
      rounds[round].points.push_back({static_cast<double>(place), compare::mean(candidate.rounds[round].scores)});
    }
  }
  chart.lines = std::move(rounds);
  return chart;
}

std::string stage_section(const Stage& stage) {
  return fmt::format(
      "<h2>{}</h2><p>{}</p><div class='grid overview'>{}{}</div><p "
      "class='note'>\u2605 taken. {}; with several seeds mean \u00b1 standard deviation.</p>",
      draw::escape(stage.title), draw::escape(stage.sentence),
      compare::figure(heading(stage.measure.unit), fmt::format("of the {}; lower is better", stage.measure.data),
                      draw::line_chart(stage_chart(stage))),
      compare::html_of(table_of(stage)), heading(stage.measure.unit));
}

std::string points(const Advice& advice) {
  std::string text;
  for (const std::string& sentence : advice.sentences) {
    text += fmt::format("<li>{}</li>\n", draw::escape(sentence));
  }
  return fmt::format("<ul>\n{}</ul>\n", text);
}

std::string method_section(const Advice& advice) {
  return "<h2>How it was found</h2><div class='card'><dl>" + compare::html_command("Command", advice.command) +
         compare::html_command("Train it with", train_command(advice)) +
         compare::html_entry("Machine", advice.machine) +
         compare::html_entry("Budget", fmt::format("{}, of which measurements and pilot runs took {}",
                                                   format_duration(advice.budget), format_duration(advice.spent))) +
         compare::html_entry(
             "Pilot runs",
             "all candidates are trained for a while, the better half for twice as long, and so on; if the last two "
             "are "
             "within one percent, three seeds decide. All pilot runs of a round take the same time on this machine, by "
             "the speeds measured beforehand") +
         compare::html_entry("Measure", fmt::format("{} of the {}{}", advice.measure.unit, advice.measure.data,
                                                    advice.measure.figure == "bits_per_byte"
                                                        ? ", which is comparable between vocabularies"
                                                        : "")) +
         compare::html_entry("This page",
                             fmt::format("made {} by {}", compare::utc_now(), compare::program_version())) +
         "</dl></div>\n";
}

}  // namespace

std::string render_report(const Advice& advice) {
  const std::string title = "Advice on " + advice.source;
  const std::string lead =
      fmt::format("{} parameters, {} tokens, learning rate {}, vocabulary of {}: {} of training.",
                  format_count(static_cast<double>(advice.parameters)), format_count(advice.tokens),
                  advice.config.train.learning_rate, advice.config.model.vocabulary_size,
                  format_duration(advice.tokens / advice.tokens_per_second));
  std::string stages;
  for (const Stage& stage : advice.stages) {
    stages += stage_section(stage);
  }
  return fmt::format("{}<header><p class='brand'>Headroom</p><h1>{}</h1><p class='lead'>{}</p></header>\n",
                     draw::page_beginning(title), draw::escape(title), draw::escape(lead)) +
         points(advice) + stages +
         fmt::format("<h2>Config</h2><div class='card whole'><pre>{}</pre></div>\n",
                     draw::escape(read_text_file(advice.file))) +
         method_section(advice) + "</main></body></html>\n";
}

void write_advised(const config::Config& config, const std::string& source, const std::string& remark,
                   const std::filesystem::path& file) {
  const std::string base = config::base_name(source, std::filesystem::absolute(file).parent_path());
  write_text_file(file, remark + config::changes_to_toml(config, config::load_config(source), base));
  try {
    if (config::flatten(config::load_config(file.string())) == config::flatten(config)) {
      return;
    }
  } catch (const UserError&) {  // keys that conflict with the base
  }
  write_text_file(file, remark + config::to_toml(config));
}

}  // namespace headroom::advise
