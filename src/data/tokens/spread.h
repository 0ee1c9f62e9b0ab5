// Selects the part of a data set that an evaluation reads if it does not read everything: units (chunks, rows,
// examples, pairs) spread evenly over the data, so that the mean over the part is close to the mean over the whole. The
// selection depends only on the sizes, so it is the same at every step, on every machine and for any number of ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace headroom::data {

// Units [begin, end).
struct UnitRange {
  std::int64_t begin = 0, end = 0;
};

// Returns `ranges` disjoint ranges, ascending, with `count` of `size` units in total. Their lengths differ by at most
// one unit, and so do the gaps between them; half a gap remains at each end. 1 <= ranges <= count <= size.
std::vector<UnitRange> spread_ranges(std::int64_t size, std::int64_t count, std::int64_t ranges);

// Returns evenly spread units of [0, size), ascending, whose costs add up to at most `most`, but at least one unit; all
// units if `most` is 0 or not exceeded by the total cost. Costs are positive.
std::vector<std::int64_t> spread_units(std::int64_t size, std::int64_t most,
                                       const std::function<std::int64_t(std::int64_t unit)>& cost);

}  // namespace headroom::data
