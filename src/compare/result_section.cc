// The table, the notes under it, and what was tuned.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "headroom/draw/charts.h"
#include "headroom/draw/svg.h"
#include "markup.h"
#include "plan.h"
#include "sections.h"
#include "statistics.h"
#include "table.h"

namespace headroom::compare {
namespace {

// The best figure of a column, when the runs differ in it; what did not come to a figure is best in nothing.
bool is_best(const CompareResult& result, const ComparedRun& of, std::size_t column, Better better) {
  const double value = row_of(of, result)[column].value;
  if (better == Better::neither || !of.has_figure() || !std::isfinite(value)) {
    return false;
  }
  double low = value, high = value;
  for (const ComparedRun& run : result.runs) {
    const double other = row_of(run, result)[column].value;
    if (run.has_figure() && std::isfinite(other)) {
      low = std::min(low, other);
      high = std::max(high, other);
    }
  }
  return low < high && value == (better == Better::lower ? low : high);
}

std::string table(const CompareResult& result) {
  const std::vector<ComparedRun>& runs = result.runs;
  std::string html = "<div class='card scroll'><table><thead><tr>";
  const std::vector<Column> all = columns(result);
  for (std::size_t i = 0; i < all.size(); ++i) {
    html +=
        fmt::format("<th scope='col'{}>{}<br>{}</th>", all[i].words ? " class='text'" : "", all[i].above, all[i].name);
  }
  html += "</tr></thead><tbody>\n";
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const std::vector<Cell> cells = row_of(runs[r], result);
    html += fmt::format("<tr><td class='name'>{}{}</td>", draw::line_sample(r), draw::escape(cells[0].text));
    for (std::size_t i = 1; i < cells.size(); ++i) {
      html += fmt::format("<td{}>{}</td>",
                          is_best(result, runs[r], i, all[i].better) ? " class='best'"
                          : all[i].words                             ? " class='text'"
                                                                     : "",
                          draw::escape(cells[i].text));
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string capitalised(std::string words) {
  words[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(words[0])));
  return words;
}

std::string table_note(const std::vector<ComparedRun>& runs) {
  std::vector<std::string> shown;
  for (const tasks::FigureKind& kind : tasks::shown_in_tables(runs.front().task().figures())) {
    shown.push_back(kind.words);
  }
  return fmt::format(
      "<p class='note'>\u2605 the best of its column. {} {} of the validation data. Attention MACs and memory are "
      "counted, for one layer and sequence; speed, peak memory and time are measured.{}</p>",
      capitalised(enumerated(shown)), shown.size() == 1 ? "is" : "are",
      runs.front().trained.size() < 2 ? ""
                                      : " Figures are means over the seeds, after \u00b1 their standard deviation; "
                                        "peak memory is the highest. The paired difference from the first model is "
                                        "taken seed by seed, in brackets its 95% interval by Student's t.");
}

// Every combination that was tried, the taken one in bold.
std::string tuning(const std::vector<ComparedRun>& runs) {
  std::string rows;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    for (const Tried& tried : runs[r].tried) {
      rows += fmt::format("<tr><td class='name'>{}{}</td><td class='text'>{}</td><td{}>{}</td></tr>\n",
                          draw::line_sample(r), draw::escape(shorten(runs[r].name, 24)),
                          draw::escape(describe(tried.values)), tried.chosen ? " class='best'" : "",
                          std::isfinite(tried.headline) ? plain_number(tried.headline) : "diverged");
    }
  }
  const std::string words = draw::escape(tasks::headline(runs.front().task().figures()).words);
  return rows.empty() ? rows
                      : fmt::format(
                            "<h2>Tuning</h2><div class='card scroll narrow'><table><thead><tr><th scope='col'>"
                            "model</th><th scope='col' class='text'>tried</th><th scope='col'>validation<br>{}"
                            "</th></tr></thead><tbody>\n{}</tbody></table></div><p class='note'>Each model "
                            "was trained with all of these and the first seed; all its seeds have the values "
                            "with the best figure, \u2605.</p>\n",
                            words, rows);
}

}  // namespace

std::string headline_text(const ComparedRun& run) {
  if (!run.has_figure()) {
    return kUnknown;
  }
  const std::vector<double> values = run.over_seeds(tasks::headline(run.task().figures()).name);
  return with_deviation(mean(values), sample_deviation(values));
}

std::string result_section(const CompareResult& result) {
  return "<h2>Result</h2>" + table(result) + table_note(result.runs) + tuning(result.runs);
}

}  // namespace headroom::compare
