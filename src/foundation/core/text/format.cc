#include <cmath>
#include <iterator>

#include "foundation/core/machine/log.h"

namespace headroom {
namespace {

// Picks the unit by the number as it will be printed, so that 999.97 k is 1.0 M.
std::string scaled(double number, double step, const char* const* units, std::size_t n_units) {
  std::size_t unit = 0;
  while (unit + 1 < n_units && std::abs(number) >= step - 0.05) {
    number /= step;
    ++unit;
  }
  return fmt::format("{:.1f} {}", number, units[unit]);
}

}  // namespace

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) {
    return "?";
  }
  if (seconds < 9.95) {
    return fmt::format("{:.1f} s", seconds);
  }
  const auto whole = static_cast<std::int64_t>(std::llround(std::min(seconds, 1e15)));
  const std::int64_t minutes = whole / 60, hours = minutes / 60, days = hours / 24;
  if (minutes == 0) {
    return fmt::format("{} s", whole);
  }
  if (hours == 0) {
    return fmt::format("{} min {:02} s", minutes, whole % 60);
  }
  if (days < 2) {
    return fmt::format("{} h {:02} min", hours, minutes % 60);
  }
  return fmt::format("{} d {:02} h", days, hours % 24);
}

std::string format_count(double number) {
  if (!std::isfinite(number)) {
    return fmt::format("{}", number);
  }
  if (std::abs(number) < 999.5 && number == std::floor(number)) {
    return fmt::format("{:.0f}", number);
  }
  if (std::abs(number) < 99.95) {
    return std::abs(number) < 0.95 ? fmt::format("{:.2g}", number) : fmt::format("{:.1f}", number);
  }
  if (std::abs(number) < 999.5) {
    return fmt::format("{:.0f}", number);
  }
  static constexpr const char* kUnits[] = {"", "k", "M", "G", "T", "P", "E"};
  return scaled(number, 1000.0, kUnits, std::size(kUnits));
}

std::string format_decimal(double number, int digits) {
  std::string text = fmt::format("{:.{}f}", number, digits);
  return text.starts_with('-') && text.find_first_not_of("-0.") == std::string::npos ? text.substr(1) : text;
}

std::string format_bytes(double bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  if (std::abs(bytes) < 1024.0) {
    return fmt::format("{:.0f} B", bytes);
  }
  return scaled(bytes, 1024.0, kUnits, std::size(kUnits));
}

}  // namespace headroom
