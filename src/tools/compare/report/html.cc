// The comparison as a page.
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "foundation/draw/charts.h"
#include "foundation/draw/page.h"
#include "foundation/draw/svg.h"
#include "markup.h"
#include "sections.h"
#include "tools/compare/compare.h"
#include "tools/compare/run/plan.h"
#include "tools/compare/run/program.h"

namespace headroom::compare {
namespace {

// Keys that are not alike in all runs, and their values.
std::string config_differences(const std::vector<ComparedRun>& runs) {
  std::vector<Values> flat;
  std::string head = "<th scope='col'>key</th>", rows;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    flat.push_back(config::flatten(runs[r].config));
    head += fmt::format("<th scope='col'>{}<br>{}</th>", draw::line_sample(r), draw::escape(shorten(runs[r].name, 24)));
  }
  for (std::size_t k = 0; k < flat.front().size(); ++k) {
    std::set<std::string> values;
    std::string cells;
    for (const Values& of_run : flat) {
      values.insert(of_run[k].second);
      cells += fmt::format("<td>{}</td>", draw::escape(shorten(of_run[k].second, 60)));
    }
    if (values.size() > 1) {
      rows += fmt::format("<tr><td class='name'>{}</td>{}</tr>\n", draw::escape(flat.front()[k].first), cells);
    }
  }
  return rows.empty() ? ""
                      : fmt::format(
                            "<p class='note'>Keys in which the configurations differ.</p><div class='card "
                            "scroll narrow'><table><thead><tr>{}</tr></thead><tbody>\n{}</tbody></table></div>\n",
                            head, rows);
}

std::string describe_seeds(const std::vector<ComparedRun>& runs) {
  if (runs.front().trained.size() < 2) {
    return "one run a model: without an interval no difference is shown to be real";
  }
  std::vector<std::string> seeds;
  for (const TrainedRun& trained : runs.front().trained) {
    seeds.push_back(std::to_string(trained.seed));
  }
  return fmt::format("{}: of parameters, dropout and shuffling; of one seed, all models see the data in the same order",
                     enumerated(seeds));
}

// What is not the same for all runs, each once.
template <class Text>
std::string each_once(const std::vector<ComparedRun>& runs, const Text& text) {
  std::vector<std::string> all;
  for (const ComparedRun& run : runs) {
    for (const TrainedRun& trained : run.trained) {
      const std::string one = text(trained);
      if (!one.empty() && std::find(all.begin(), all.end(), one) == all.end()) {
        all.push_back(one);
      }
    }
  }
  return fmt::format("{}", fmt::join(all, "; "));
}

// "2026-03-01 10:12 UTC", or from the first to the last.
std::string dates_of(const std::vector<ComparedRun>& runs) {
  std::set<std::string> dates;
  for (const ComparedRun& run : runs) {
    for (const TrainedRun& trained : run.trained) {
      if (!trained.finished.empty()) {
        dates.insert(trained.finished);
      }
    }
  }
  return dates.empty() ? "" : dates.size() == 1 ? *dates.begin() : *dates.begin() + " to " + *dates.rbegin();
}

}  // namespace

std::string figure(const std::string& caption, const std::string& remark, const std::string& chart) {
  return fmt::format("<figure class='card'><figcaption>{} <small>{}</small></figcaption>{}</figure>\n", caption, remark,
                     chart);
}

std::string configuration_section(const CompareResult& result) {
  const ComparedRun& first = result.runs.front();
  return fmt::format(
      "<h2>Configuration{}</h2>{}<div class='card whole'><details><summary>All of {}</summary><pre>{}</pre>"
      "</details></div>\n",
      result.runs.size() > 1 ? "s" : "", config_differences(result.runs), draw::escape(first.name),
      draw::escape(config::to_toml(first.config)));
}

std::string circumstances_section(const CompareResult& result) {
  const std::vector<ComparedRun>& runs = result.runs;
  const auto entry = [](const char* term, const std::string& text) {
    return text.empty() ? std::string() : fmt::format("<dt>{}</dt><dd>{}</dd>", term, draw::escape(text));
  };
  const bool single = result.kind == Kind::run;
  return "<h2>How it was measured</h2><div class='card'><dl>" + entry("Command", result.command) +
         entry("Finished", dates_of(runs)) +
         entry("Trained by", each_once(runs, [](const TrainedRun& run) { return run.program; })) +
         entry("Machine", each_once(runs, [](const TrainedRun& run) { return run.machine; })) +
         entry("Validation", std::string(runs.front().task().protocol())) +
         entry("Attention costs",
               "multiply-accumulates and numbers kept for the backward pass, of one layer and one "
               "sequence, counted as in the SwitchHead paper; those of a training step are counted "
               "as executed, three times the forward products of the whole model") +
         entry("Peak memory",
               "the highest resident memory of the process during the run, program and libraries included") +
         entry("Time", "wall clock of the training steps alone: evaluation and checkpoints are not counted") +
         entry("Seeds", single ? "" : describe_seeds(runs)) +
         entry("This page", fmt::format("made {} by {}", now(), program())) + "</dl></div>\n";
}

namespace {

// A figure does not leave its deviation for the next line.
std::string keep_together(std::string text) {
  constexpr std::string_view kApart = " \u00b1 ", kTogether = "\u00a0\u00b1\u00a0";
  for (std::size_t at = text.find(kApart); at != std::string::npos; at = text.find(kApart, at)) {
    text.replace(at, kApart.size(), kTogether);
  }
  return text;
}

// Sentences below each other; nothing of none.
std::string points(const char* style, const std::vector<std::string>& sentences) {
  std::string items;
  for (const std::string& sentence : sentences) {
    items += fmt::format("<li>{}</li>", keep_together(draw::escape(sentence)));
  }
  return items.empty() ? "" : fmt::format("<ul class='{}'>{}</ul>\n", style, items);
}

// A watched page loads itself again.
std::string refresh(int seconds) {
  return seconds > 0 ? fmt::format("<meta http-equiv='refresh' content='{}'>", seconds) : "";
}

}  // namespace

std::string render_report(const CompareResult& result) {
  const std::string about =
      result.about.empty() ? "" : fmt::format("<p class='note'>{}</p>\n", draw::escape(result.about));
  return fmt::format("{}<header><p class='brand'>Headroom{}</p><h1>{}</h1>{}{}</header>\n",
                     draw::page_beginning(result.title, "", refresh(result.refresh_seconds)),
                     result.refresh_seconds > 0 ? " \u00b7 written again while training goes on" : "",
                     draw::escape(result.title), points("lead", result.conclusion),
                     about + points("warn", result.notes)) +
         result_section(result) + scaling_section(result) + value_section(result) + learning_section(result) +
         cost_section(result) + sample_section(result) + configuration_section(result) + circumstances_section(result) +
         "</main></body></html>\n";
}

}  // namespace headroom::compare
