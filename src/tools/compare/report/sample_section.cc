// What the models write: at the end, and while they learn.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "foundation/draw/charts.h"
#include "foundation/draw/svg.h"
#include "sections.h"

namespace headroom::compare {
namespace {

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
  return html.empty() ? html
                      : fmt::format(
                            "<h2>Sample text</h2><p class='note'>Every model continues the same beginning "
                            "(grey): {}.</p>{}",
                            draw::escape(result.sampling), html);
}

// At most kShown of a run's samples, evenly spread, the last among them.
std::string samples_of(const ComparedRun& run, std::size_t index) {
  constexpr std::size_t kShown = 8;
  const std::vector<WrittenSample>& all = run.trained.front().history.samples;
  const std::size_t shown = std::min(all.size(), kShown);
  std::string html;
  for (std::size_t i = 1; i <= shown; ++i) {
    const WrittenSample& sample = all[i * all.size() / shown - 1];
    html += fmt::format("<h4>step {}</h4><pre><span class='prompt'>{}</span>{}</pre>", sample.step,
                        draw::escape(sample.prompt), draw::escape(sample.text));
  }
  return html.empty() ? html
                      : fmt::format("<section class='card'><h3>{} {}</h3>{}</section>\n", draw::line_sample(index),
                                    draw::escape(run.name), html);
}

std::string while_training(const std::vector<ComparedRun>& runs) {
  std::string html;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    html += samples_of(runs[r], r);
  }
  return html.empty()
             ? html
             : "<h2>Samples from training</h2><p class='note'>What a model made of a beginning (grey) after so "
               "many steps.</p><div class='grid samples'>" +
                   html + "</div>\n";
}

}  // namespace

std::string sample_section(const CompareResult& result) {
  return continuations(result) + while_training(result.runs);
}

}  // namespace headroom::compare
