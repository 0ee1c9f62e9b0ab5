// Packs the largest contributions to an attention layer's output for the inspector's page.
#pragma once

#include <cstdint>
#include <string>

#include "attribution.h"
#include "headroom/core/json.h"

namespace headroom::inspector {

struct PackedContributions {
  std::string bytes;  // "contributions.l" as inspector.h describes it, not compressed
  // "contributions" (their number per token), "splits" ([{"name", "terms"}] of the decompositions), "score_terms" (of
  // composed scores), "residual" (the largest error of the sum)
  Json about;
};

// Keeps the `most` largest contributions per token.
PackedContributions pack_contributions(const Attribution& a, std::int64_t most);

}  // namespace headroom::inspector
