// Families of sizes on the page: loss against compute, the lines, and how far apart they are.
#include <fmt/format.h>

#include "foundation/core/text/format.h"
#include "foundation/draw/charts.h"
#include "foundation/draw/svg.h"
#include "markup.h"
#include "sections.h"
#include "tools/compare/figures/scaling.h"

namespace headroom::compare {
namespace {

draw::ScatterChart chart_of(const Scaling& scaling) {
  draw::ScatterChart chart{
      .title = "Validation loss against training compute", .x_label = "training FLOPs", .points = {}};
  for (std::size_t f = 0; f < scaling.size(); ++f) {
    const ScaledFamily& family = scaling[f];
    for (const ScaledModel& model : family.models) {
      const bool smallest = &model == &family.models.front();  // where there is room for the family's name
      chart.points.push_back({model.name, {model.flops, model.loss()}, f, smallest ? shorten(family.name, 24) : ""});
    }
    if (!family.unfitted.empty()) {
      continue;
    }
    const double from = family.models.front().flops, to = family.models.back().flops;
    chart.lines.push_back({{from, family.law.loss(from)}, {to, family.law.loss(to)}, f});
    if (family.saving) {
      const double loss = family.saving->loss;
      chart.gaps.push_back(
          {{family.law.flops(loss), loss}, {scaling.front().law.flops(loss), loss}, saving_text(*family.saving), f});
    }
  }
  return chart;
}

std::string row_of(const ScaledFamily& family, const ScaledModel& model, std::size_t style) {
  return fmt::format("<tr><td class='name'>{}{}</td><td class='text'>{}</td><td>{}</td><td>{}</td><td>{}{}</td></tr>\n",
                     draw::line_sample(style), draw::escape(shorten(family.name, 24)),
                     draw::escape(shorten(model.name, 24)), short_number(model.flops), format_decimal(model.loss(), 3),
                     model.saving ? saving_text(*model.saving) : "",
                     model.saving && model.saving->extrapolated ? " <small>extrapolated</small>" : "");
}

}  // namespace

std::string scaling_section(const CompareResult& result) {
  if (result.scaling.empty()) {
    return "";
  }
  std::string rows;
  for (std::size_t f = 0; f < result.scaling.size(); ++f) {
    for (const ScaledModel& model : result.scaling[f].models) {
      rows += row_of(result.scaling[f], model, f);
    }
  }
  const std::string first = draw::escape(shorten(result.scaling.front().name, 24));
  return "<h2>Scaling</h2><div class='grid'>" +
         figure("Loss against compute",
                "validation loss in nats and FLOPs of all training steps, both logarithmic; a line through each family "
                "and, at a loss that both reach, how many times the compute the first one needs",
                draw::scatter_chart(chart_of(result.scaling))) +
         "</div>\n" +
         fmt::format(
             "<div class='card scroll narrow'><table><thead><tr><th scope='col'>family</th><th scope='col' "
             "class='text'>model</th><th scope='col'>training<br>FLOPs</th><th scope='col'>validation<br>"
             "loss</th><th scope='col'>times that<br>{} needs</th></tr></thead><tbody>\n{}</tbody></table></div>"
             "<p class='note'>Times that the line of {} needs the compute of a model for its loss. FLOPs: two "
             "for each multiply-accumulate of a training step, times the steps. Lines: least squares of the "
             "logarithms of both. Brackets: 95% intervals by Student's t over the seeds.</p>\n",
             first, rows, first);
}

}  // namespace headroom::compare
