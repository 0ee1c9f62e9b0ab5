// Makes a vector of the results of a function.
#pragma once

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

}  // namespace headroom
