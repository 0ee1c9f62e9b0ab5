// How something grows with another.
#pragma once

#include <cstddef>
#include <vector>

#include "foundation/draw/charts.h"

namespace headroom::bench {

// b of the power law y = a x^b that comes nearest to the last `n` of the points (all when 0); x and y above 0.
double exponent(const std::vector<draw::Point>& points, std::size_t n = 0);

}  // namespace headroom::bench
