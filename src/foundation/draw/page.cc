#include "page.h"

#include <fmt/format.h>

#include "charts.h"
#include "svg.h"

namespace headroom::draw {

std::string page_beginning(std::string_view title, std::string_view style, std::string_view head) {
  return fmt::format(
      "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>{}<meta name='viewport' "
      "content='width=device-width, initial-scale=1'><title>{}</title><style>{}{}{}</style></head>\n<body><main>",
      head, escape(title), kStyleSheet, kPageStyle, style);
}

std::string standalone(const std::vector<LineChart>& charts) {
  constexpr double kTitle = 34.0, kFootHeight = 8.0, kGap = 24.0;
  const double width = (kWidth + kGap) * static_cast<double>(charts.size()),
               height = kTitle + kChartHeight + kFootHeight;
  std::string drawing = element("style", {}, kStyleSheet);
  drawing += element("rect", {{"width", width}, {"height", height}, {"style", "fill: var(--card)"}});
  double x = kGap / 2.0;
  for (const LineChart& chart : charts) {
    drawing += element(
        "g", {{"class", "chart"}, {"transform", fmt::format("translate({:.0f} 0)", x)}},
        element("text", {{"class", "title"}, {"x", 0.0}, {"y", kTitle / 2.0}}, escape(chart.title)) +
            element("svg", {{"y", kTitle}, {"width", kWidth}, {"height", kChartHeight}, {"overflow", "visible"}},
                    line_chart(chart)));
    x += kWidth + kGap;
  }
  return element("svg",
                 {{"xmlns", "http://www.w3.org/2000/svg"},
                  {"viewBox", fmt::format("0 0 {:.0f} {:.0f}", width, height)},
                  {"width", fmt::format("{:.0f}", width)},
                  {"height", fmt::format("{:.0f}", height)},
                  {"font-family", "system-ui, sans-serif"}},
                 drawing) +
         "\n";
}

}  // namespace headroom::draw
