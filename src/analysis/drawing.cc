#include "drawing.h"

#include <fmt/format.h>

#include <cmath>

#include "headroom/core/svg.h"
#include "svg.h"

namespace headroom::analysis {

std::string style_class(const char* name, std::size_t style) {
  return fmt::format("{} s{}", name, style % kStyles);
}

std::string text_at(const std::string& kind, double x, double y, const std::string& content) {
  return svg::element("text", {{"class", kind}, {"x", x}, {"y", y}}, content);
}

std::string tick_text(double tick) {
  const double size = std::abs(tick);
  return size >= 1e6   ? fmt::format("{:.6g} M", tick / 1e6)
         : size >= 1e4 ? fmt::format("{:.6g} k", tick / 1e3)
                       : fmt::format("{:.6g}", tick);
}

std::string chart_of(double height, const std::string& title, const std::string& drawing) {
  return svg::element("svg",
                      {{"class", "chart"},
                       {"viewBox", fmt::format("0 0 {:.0f} {:.0f}", kWidth, height)},
                       {"role", "img"},
                       {"aria-label", title}},
                      drawing);
}

}  // namespace headroom::analysis
