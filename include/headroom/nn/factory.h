// Who builds the layer of a part of attention: found by the part's name (config/attention_part.h), registered in the
// layer's own file.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "headroom/core/error.h"

namespace headroom::nn {

// Make: a pointer to a function, MakeScore and the like. One table for each.
template <class Make>
std::map<std::string, Make, std::less<>>& factories();

// At namespace scope: const Factory<MakeScore> kDotScore("dot", [](...) { ... });
template <class Make>
class Factory {
 public:
  Factory(std::string_view part, Make make) { factories<Make>().emplace(part, make); }
};

// Throws Error for a part without a layer.
template <class Make>
Make factory_of(std::string_view part) {
  const auto found = factories<Make>().find(part);
  if (found == factories<Make>().end()) {
    fail("model.attention: \"{}\" has no layer", part);
  }
  return found->second;
}

}  // namespace headroom::nn
