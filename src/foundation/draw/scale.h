// Where a value is drawn along an axis.
#pragma once

#include <cmath>

namespace headroom::draw {

// `low` is drawn at `from`, `high` at `to`. Of a logarithmic scale these two are the values' logarithms.
struct Scale {
  double low = 0.0, high = 1.0, from = 0.0, to = 1.0;
  bool logarithmic = false;

  double operator()(double value) const {
    return from + ((logarithmic ? std::log(value) : value) - low) / (high - low) * (to - from);
  }
  // The values at its two ends.
  double first() const { return logarithmic ? std::exp(low) : low; }
  double last() const { return logarithmic ? std::exp(high) : high; }
  // Makes room at both ends: `share` of the range, at least `least`.
  void widen(double share, double least) {
    const double room = std::fmax(share * (high - low), least);
    low -= room;
    high += room;
  }
};

}  // namespace headroom::draw
