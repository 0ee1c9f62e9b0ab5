// What runs look like as lines of a chart.
#pragma once

#include <cstddef>
#include <string>

#include "foundation/draw/charts.h"
#include "tools/compare/compare.h"

namespace headroom::compare {

// Of a run's history, of several seeds the mean at the steps that all of them logged: the headline figure of the
// validations, with a band from the lowest seed to the highest, and the losses. Of the first seed alone how evenly
// tokens spread over experts: the mean over the banks, with a band from the least to the most even.
struct Curves {
  draw::Line over_steps, over_seconds;
  draw::Line training_loss, validation_loss;
  draw::Line expert_use;
};
Curves curves_of(const ComparedRun& run, std::size_t style);

// Of the first seed, as logged, without names.
struct OptimizerCurves {
  draw::Line learning_rate, gradient_norm;
};
OptimizerCurves optimizer_curves_of(const ComparedRun& run);

// A run's name where there is little room: of a sweep's, whose names are keys and values, the values alone.
std::string label_of(const ComparedRun& run);

// The headline figure of a sweep's runs against the values of variation number `key`: a line for each combination of
// the other keys where those are few, else the best of them all.
draw::LineChart values_chart(const CompareResult& result, std::size_t key);

}  // namespace headroom::compare
