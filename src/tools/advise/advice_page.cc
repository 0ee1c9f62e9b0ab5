// The advice as a page.
#include <fmt/format.h>

#include <cmath>

#include "advice_table.h"
#include "foundation/core/text/format.h"
#include "foundation/draw/charts.h"
#include "foundation/draw/page.h"
#include "foundation/draw/svg.h"
#include "headroom/core/files.h"
#include "tools/compare/figures/statistics.h"
#include "tools/compare/report/markup.h"
#include "tools/compare/run/program.h"

namespace headroom::compare {
namespace {

// What each round found, a line a round, over what was tried.
draw::LineChart stage_chart(const Stage& stage) {
  draw::LineChart chart{.title = "Bits per byte: " + stage.title, .x_label = stage.title};
  std::vector<draw::Line> rounds;
  constexpr std::size_t kRoom = 5, kNameLength = 16;  // so many names fit side by side on a phone
  const std::size_t every = stage.arms.size() > kRoom ? 2 : 1;
  for (std::size_t place = 0; place < stage.arms.size(); ++place) {
    const Arm& arm = stage.arms[place];
    chart.x_names.push_back(place % every == stage.taken % every ? shorten(arm.name, kNameLength) : "");
    for (std::size_t round = 0; round < arm.rounds.size(); ++round) {
      if (rounds.size() <= round) {
        rounds.push_back({.name = fmt::format("round {}", round + 1), .style = round});
      }
      rounds[round].points.push_back({static_cast<double>(place), mean(arm.rounds[round].scores)});
    }
  }
  chart.lines = std::move(rounds);
  return chart;
}

std::string stage_table(const Stage& stage) {
  const AdviceTable table = table_of(stage);
  std::string head, rows;
  for (const AdviceColumn& column : table.head) {
    head += fmt::format("<th scope='col'>{}{}</th>", draw::escape(column.name),
                        column.note.empty() ? "" : "<br>" + draw::escape(column.note));
  }
  for (const AdviceRow& row : table.rows) {
    rows += "<tr>";
    std::size_t last = row.cells.size() - 1;
    for (; row.taken && row.cells[last].empty(); --last) {
    }
    for (std::size_t i = 0; i < row.cells.size(); ++i) {
      const char* kind = i == 0 ? " class='name'" : row.taken && i == last ? " class='best'" : "";
      rows += fmt::format("<td{}>{}</td>", kind, draw::escape(row.cells[i]));
    }
    rows += "</tr>\n";
  }
  return fmt::format("<div class='card scroll'><table><thead><tr>{}</tr></thead><tbody>\n{}</tbody></table></div>\n",
                     head, rows);
}

std::string stage_section(const Stage& stage) {
  return fmt::format(
      "<h2>{}</h2><p>{}</p><div class='grid overview'><figure class='card'><figcaption>Bits per byte <small>of the "
      "validation text, by what was tried; lower is better</small></figcaption>{}</figure>{}</div><p "
      "class='note'>\u2605 taken. "
      "Bits per byte; of several seeds the mean, after \u00b1 the standard deviation.</p>",
      draw::escape(stage.title), draw::escape(stage.sentence), draw::line_chart(stage_chart(stage)),
      stage_table(stage));
}

std::string points(const Advice& advice) {
  std::string text;
  for (const std::string& sentence : advice.sentences) {
    text += fmt::format("<li>{}</li>\n", draw::escape(sentence));
  }
  return fmt::format("<ul>\n{}</ul>\n", text);
}

std::string entry(const char* term, const std::string& text) {
  return text.empty() ? text : fmt::format("<dt>{}</dt><dd>{}</dd>", term, draw::escape(text));
}

std::string circumstances(const Advice& advice) {
  return "<h2>How it was found</h2><div class='card'><dl>" + entry("Command", advice.command) +
         entry("Machine", advice.machine) +
         entry("Budget", fmt::format("{}, of which measuring and trials took {}", format_duration(advice.budget),
                                     format_duration(advice.spent))) +
         entry(
             "Trials",
             "all that is tried is trained for a while, the better half for twice as long, and so on; where the last "
             "two "
             "are within one percent, three seeds decide. All trials of a round take equally long on this machine, as "
             "measured beforehand") +
         entry("Measure",
               "bits per byte of the same stretch of the validation text, which compares models of different "
               "vocabularies") +
         entry("This page", fmt::format("made {} by {}", now(), program())) + "</dl></div>\n";
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
         circumstances(advice) + "</main></body></html>\n";
}

}  // namespace headroom::compare
