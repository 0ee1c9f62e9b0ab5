// Choice between the implementations of an operator, with counters.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "headroom/core/error.h"
#include "headroom/core/implementation.h"

namespace headroom::ops {

// Thrown if `fused` was requested and no fused implementation supports the inputs on this machine.
class NoFusedError : public UserError {
 public:
  using UserError::UserError;
};

// Returns `reference` or `fused`, never `automatic`, and counts the choice. `refusal` is the reason why no fused
// implementation applies; if it is empty, `backend` names the fused implementation to count. Throws NoFusedError if
// `wanted` is fused and `refusal` is not empty.
Implementation choose(std::string_view op, Implementation wanted, const std::string& refusal,
                      const std::string& backend = "");

// Returns the implementation with this name. Throws UserError for an unknown name.
Implementation implementation_named(std::string_view name);

struct ImplementationCounts {
  std::int64_t fused = 0, reference = 0;         // number of calls
  std::map<std::string, std::int64_t> backends;  // fused calls by backend
  std::string refusal;                           // the last reason why `automatic` used the reference
};

// Returns the counters by operator since the start or the last reset. Thread-safe.
std::map<std::string, ImplementationCounts> implementation_counts();
void reset_implementation_counts();

}  // namespace headroom::ops
