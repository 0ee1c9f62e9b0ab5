#include "growth.h"

#include <cmath>

namespace headroom::bench {

double exponent(const std::vector<draw::Point>& points, std::size_t n) {
  const std::size_t first = n == 0 || n > points.size() ? 0 : points.size() - n;
  double x = 0.0, y = 0.0, xx = 0.0, xy = 0.0;
  for (std::size_t i = first; i < points.size(); ++i) {
    const double u = std::log(points[i].x), v = std::log(points[i].y);
    x += u;
    y += v;
    xx += u * u;
    xy += u * v;
  }
  const auto count = static_cast<double>(points.size() - first);
  return (count * xy - x * y) / (count * xx - x * x);
}

}  // namespace headroom::bench
