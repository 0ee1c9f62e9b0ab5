// "Did you mean ...?"
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headroom {

// The most similar candidate, "" when none is similar: few letters inserted, dropped, replaced or swapped with their
// neighbour.
std::string nearest(std::string_view wrong, const std::vector<std::string>& candidates);

}  // namespace headroom
