// The results of a function over a range: as a vector, and their sum or maximum.
#pragma once

#include <algorithm>
#include <functional>
#include <ranges>
#include <type_traits>
#include <vector>

namespace headroom {

// Returns function(element) for each element of `range`, in order. A pointer to a member returns that member:
// transformed(runs, &Run::name).
template <class Range, class Function>
auto transformed(const Range& range, Function&& function) {
  std::vector<std::decay_t<std::invoke_result_t<Function&, std::ranges::range_reference_t<const Range&>>>> results;
  results.reserve(static_cast<std::size_t>(std::ranges::distance(range)));
  for (const auto& element : range) {
    results.push_back(std::invoke(function, element));
  }
  return results;
}

// Returns the sum of function(element), which is at least 0, over `range`, in order; `function` as for transformed().
template <class Range, class Function>
auto sum_over(const Range& range, Function&& function) {
  std::decay_t<std::invoke_result_t<Function&, std::ranges::range_reference_t<const Range&>>> sum = 0;
  for (const auto& element : range) {
    sum += std::invoke(function, element);
  }
  return sum;
}

// Returns the maximum of `least` and function(element) over `range`; `function` as for transformed().
template <class Range, class Function, class Value>
Value max_over(const Range& range, Function&& function, Value least) {
  for (const auto& element : range) {
    least = std::max<Value>(least, std::invoke(function, element));
  }
  return least;
}

}  // namespace headroom
