#include "duration.h"

#include <charconv>
#include <string_view>
#include <utility>

#include "headroom/core/error.h"

namespace headroom {

double parse_duration(std::string_view text, std::string_view what) {
  constexpr std::pair<char, double> kUnits[] = {{'s', 1.0}, {'m', 60.0}, {'h', 3600.0}, {'d', 86400.0}};
  constexpr double kLongest = 1000.0 * 86400.0;
  double number = 0.0, seconds = 0.0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  for (const auto& [letter, unit] : kUnits) {
    if (error == std::errc() && end - rest == 1 && *rest == letter) {
      seconds = number * unit;
    }
  }
  if (!(seconds > 0.0 && seconds <= kLongest)) {
    user_error("{}: must be a time above 0 and up to 1000d, as in 90s, 30m, 2h or 1d, got \"{}\"", what, text);
  }
  return seconds;
}

}  // namespace headroom
