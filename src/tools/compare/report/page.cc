// The page of a comparison.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <string_view>

#include "formatting.h"
#include "foundation/core/transformed.h"
#include "foundation/draw/charts.h"
#include "foundation/draw/page.h"
#include "foundation/draw/svg.h"
#include "headroom/core/files.h"
#include "sections.h"
#include "tools/compare/run/run_folder.h"

namespace headroom::compare {
namespace {

// Lists the keys in which the configs differ, with their values.
std::string config_differences(const std::vector<ComparedRun>& runs) {
  std::vector<Values> flat;
  Table table{.columns = {{.name = "key"}}, .rows = {}};
  for (std::size_t r = 0; r < runs.size(); ++r) {
    flat.push_back(config::flatten(runs[r].config));
    table.columns.push_back({.name = shorten(runs[r].name, 24), .style = r});
  }
  for (std::size_t k = 0; k < flat.front().size(); ++k) {
    std::vector<Cell> row = {{.text = flat.front()[k].first}};
    for (const Values& of_run : flat) {
      row.push_back({.text = shorten(of_run[k].second, 60)});
    }
    if (std::ranges::any_of(flat, [&](const Values& of_run) { return of_run[k].second != flat.front()[k].second; })) {
      table.rows.push_back(std::move(row));
    }
  }
  return table.rows.empty()
             ? ""
             : "<p class='note'>Keys in which the configurations differ.</p>" + html_of(table, " narrow");
}

std::string describe_seeds(const std::vector<ComparedRun>& runs) {
  if (runs.front().trained.size() < 2) {
    return "one per model: without an interval, a difference may be chance";
  }
  std::vector<std::string> seeds =
      transformed(runs.front().trained, [&](const TrainedRun& trained) { return std::to_string(trained.seed); });
  return fmt::format(
      "{}, for parameters, dropout and shuffling; with the same seed, all models see the data in the same order",
      enumerated(seeds));
}

// Joins the distinct values of text(run) over all runs.
template <class Text>
std::string distinct_values(const std::vector<ComparedRun>& runs, const Text& text) {
  std::vector<std::string> all;
  for (const ComparedRun& run : runs) {
    for (const TrainedRun& trained : run.trained) {
      const std::string one = text(trained);
      if (!one.empty() && std::ranges::find(all, one) == all.end()) {
        all.push_back(one);
      }
    }
  }
  return fmt::format("{}", fmt::join(all, "; "));
}

// Returns "2026-03-01 10:12 UTC", or the earliest and latest date.
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

std::string html_entry(const char* term, const std::string& text) {
  return text.empty() ? "" : fmt::format("<dt>{}</dt><dd>{}</dd>", term, draw::escape(text));
}

std::string html_command(const char* term, const std::string& command) {
  return command.empty() ? ""
                         : fmt::format(
                               "<dt>{}</dt><dd><code>{}</code><button class='copy' type='button' "
                               "onclick=\"navigator.clipboard.writeText(this.previousSibling.textContent); "
                               "this.textContent = 'Copied'\">Copy</button></dd>",
                               term, draw::escape(command));
}

namespace {

std::string configuration_section(const CompareResult& result) {
  const ComparedRun& first = result.runs.front();
  return fmt::format(
      "<h2>Configuration{}</h2>{}<div class='card whole'><details><summary>All of "
      "{}</summary><pre>{}</pre></details></div>\n",
      result.runs.size() > 1 ? "s" : "", config_differences(result.runs), draw::escape(first.name),
      draw::escape(config::to_toml(first.config)));
}

std::string method_section(const CompareResult& result) {
  const std::vector<ComparedRun>& runs = result.runs;
  const bool single = result.kind == Kind::run;
  const auto origin = [&runs](std::string Origin::*text) {
    return distinct_values(runs, [text](const TrainedRun& run) { return run.origin.*text; });
  };
  const auto data = [&runs](std::string train::RunData::*text) {
    return distinct_values(runs, [text](const TrainedRun& run) { return run.origin.data.*text; });
  };
  return "<h2>How it was measured</h2><div class='card'><dl>" + html_command("Command", result.command) +
         html_entry("Finished", dates_of(runs)) + html_entry("Trained by", origin(&Origin::program)) +
         html_entry("Machine", origin(&Origin::machine)) +
         html_entry("Training data", data(&train::RunData::training)) +
         html_entry("Validation data", data(&train::RunData::validation)) +
         html_entry("Tokenizer", data(&train::RunData::tokenizer)) +
         html_entry("Validation", std::string(runs.front().task().protocol())) +
         html_entry("Attention costs",
                    "multiply-accumulates, and values stored for the backward pass, of one layer and one sequence, "
                    "counted as in the SwitchHead paper; those of a training step are counted as executed: three times "
                    "the matrix multiplications of the whole model's forward pass") +
         html_entry(
             "Peak memory",
             "the highest resident memory of the process during the run, including the program and its libraries") +
         html_entry("Time", "wall clock of the training steps, without evaluation and checkpoints") +
         html_entry("Seeds", single ? "" : describe_seeds(runs)) +
         html_entry("This page", fmt::format("made {} by {}", utc_now(), program_version())) + "</dl></div>\n";
}

std::string continuations(const CompareResult& result) {
  std::string html;
  for (std::size_t p = 0; p < result.prompts.size(); ++p) {
    html += "<div class='grid samples'>";
    for (std::size_t r = 0; r < result.runs.size(); ++r) {
      const ComparedRun& run = result.runs[r];
      if (p < run.samples.size()) {
        html +=
            fmt::format("<section class='card'><h3>{} {}</h3><pre><span class='prompt'>{}</span>{}</pre></section>\n",
                        draw::line_sample(r), draw::escape(run.name), draw::escape(result.prompts[p]),
                        draw::escape(run.samples[p]));
      }
    }
    html += "</div>\n";
  }
  return html.empty()
             ? html
             : fmt::format(
                   "<h2>Sample text</h2><p class='note'>Every model continues the same prompt (grey): {}.</p>{}",
                   draw::escape(result.sampling), html);
}

// Shows up to kShown of a run's samples, evenly spaced, including the last.
std::string samples_of(const ComparedRun& run, std::size_t index) {
  constexpr std::size_t kShown = 8;
  const std::vector<SampleText>& all = run.trained.front().log.samples;
  const std::size_t shown = std::min(all.size(), kShown);
  std::string html;
  for (std::size_t i = 1; i <= shown; ++i) {
    const SampleText& sample = all[i * all.size() / shown - 1];
    html += fmt::format("<h4>step {}</h4><pre><span class='prompt'>{}</span>{}</pre>", sample.step,
                        draw::escape(sample.prompt), draw::escape(sample.text));
  }
  return html.empty() ? html
                      : fmt::format("<section class='card'><h3>{} {}</h3>{}</section>\n", draw::line_sample(index),
                                    draw::escape(run.name), html);
}

std::string samples_during_training(const std::vector<ComparedRun>& runs) {
  std::string html;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    html += samples_of(runs[r], r);
  }
  return html.empty() ? html
                      : "<h2>Samples from training</h2><p class='note'>Continuations of a prompt (grey) during "
                        "training.</p><div class='grid samples'>" +
                            html + "</div>\n";
}

// Joins a figure and its deviation with non-breaking spaces.
std::string without_break(std::string text) {
  constexpr std::string_view kApart = " \u00b1 ", kTogether = "\u00a0\u00b1\u00a0";
  for (std::size_t at = text.find(kApart); at != std::string::npos; at = text.find(kApart, at)) {
    text.replace(at, kApart.size(), kTogether);
  }
  return text;
}

// Returns an HTML list of the sentences; empty for none.
std::string points(const char* style, const std::vector<std::string>& sentences) {
  std::string items;
  for (const std::string& sentence : sentences) {
    items += fmt::format("<li>{}</li>", without_break(draw::escape(sentence)));
  }
  return items.empty() ? "" : fmt::format("<ul class='{}'>{}</ul>\n", style, items);
}

// The comparisons shown below this one: title, sentences, table.
std::string further_sections(const CompareResult& result) {
  std::string html;
  for (const CompareResult& other : result.further) {
    html += fmt::format("<h2>{}</h2><p class='note'>{}</p>{}{}", draw::escape(other.title), draw::escape(other.about),
                        points("lead", other.conclusion), result_section(other));
  }
  return html;
}

// Makes a watched page reload itself.
std::string refresh(int seconds) {
  return seconds > 0 ? fmt::format("<meta http-equiv='refresh' content='{}'>", seconds) : "";
}

}  // namespace

std::string render_report(const CompareResult& result) {
  const std::string about =
      result.about.empty() ? "" : fmt::format("<p class='note'>{}</p>\n", draw::escape(result.about));
  return fmt::format("{}<header><p class='brand'>Headroom{}</p><h1>{}</h1>{}{}</header>\n",
                     draw::page_beginning(result.title, "", refresh(result.refresh_seconds)),
                     result.refresh_seconds > 0 ? " \u00b7 updated during training" : "", draw::escape(result.title),
                     points("lead", result.conclusion), about + points("warn", result.notes)) +
         result_section(result) + further_sections(result) + scaling_section(result) + value_section(result) +
         learning_section(result) + cost_section(result) + continuations(result) +
         samples_during_training(result.runs) + configuration_section(result) + method_section(result) +
         "</main></body></html>\n";
}

void write_page(CompareResult& result, const std::filesystem::path& file) {
  result.report = file;
  write_text_file(file, render_report(result));
}

}  // namespace headroom::compare
