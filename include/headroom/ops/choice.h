// Which implementation an operator takes, decided in one place and remembered, so that a run can say what it used.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "headroom/core/error.h"
#include "headroom/core/implementation.h"

namespace headroom::ops {

// Fused was asked for, and no fused version takes what was handed in here.
class NoFusedError : public UserError {
 public:
  using UserError::UserError;
};

// reference or fused, never automatic. `refusal` is why no fused version applies, empty when one does; `backend` is the
// name of that one. Throws NoFusedError with the reason when fused was asked for nevertheless.
Implementation choose(std::string_view op, Implementation wanted, const std::string& refusal,
                      const std::string& backend = "");

// By its name; throws UserError for another.
Implementation implementation_named(std::string_view name);

struct Choices {
  std::int64_t fused = 0, reference = 0;         // calls
  std::map<std::string, std::int64_t> backends;  // of the fused ones, by the name of what ran
  std::string refusal;                           // the last reason for a reference under `automatic`
};

// By operator, since the start or the last forget_choices(). Calls from several threads are safe.
std::map<std::string, Choices> choices();
void forget_choices();

}  // namespace headroom::ops
