// What a run's history looks like as lines of a chart.
#pragma once

#include <cstddef>

#include "headroom/analysis/compare.h"
#include "svg.h"

namespace headroom::analysis {

// The headline figure of the validations. Of several seeds the mean, with a band from the lowest to the highest, at the
// steps that all have validated at.
struct Curves {
  Line over_steps, over_seconds;
};
Curves curves_of(const ComparedRun& run, std::size_t style);

}  // namespace headroom::analysis
