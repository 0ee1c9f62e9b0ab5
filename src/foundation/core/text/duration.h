// Lengths of time as people write them.
#pragma once

#include <string_view>

namespace headroom {

// Seconds of "90s", "30m", "2h" or "1d"; the number may have decimals: "1.5h". Throws UserError, `what` first, for
// anything else, and for what is not above 0 or longer than 1000 days.
double parse_duration(std::string_view text, std::string_view what);

}  // namespace headroom
