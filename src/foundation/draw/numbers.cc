#include "numbers.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <vector>

#include "foundation/core/text/format.h"
#include "foundation/core/text/utf8.h"

namespace headroom::draw {
namespace {

std::string with_thousands(long long number) {
  std::string digits = std::to_string(number);
  for (std::ptrdiff_t at = std::ssize(digits) - 3; at > (number < 0 ? 1 : 0); at -= 3) {
    digits.insert(static_cast<std::size_t>(at), 1, ',');
  }
  return digits;
}

// Returns the number of decimals that gives three significant digits.
int decimals(double number) {
  const double magnitude = std::abs(number);
  return magnitude >= 99.95 ? 0 : magnitude >= 9.995 ? 1 : 2;
}

}  // namespace

std::string shorten(std::string_view text, std::size_t characters) {
  std::string whole = repair_utf8(text);
  std::vector<std::size_t> starts;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    if (!continues_character(whole[i])) {
      starts.push_back(i);
    }
  }
  if (starts.size() <= characters) {
    return whole;
  }
  // Removes the middle, because names often differ at their ends.
  const std::size_t head = characters / 2, tail = characters - head - 1;
  return whole.substr(0, starts[head]) + "\xe2\x80\xa6" + (tail > 0 ? whole.substr(starts[starts.size() - tail]) : "");
}

std::string short_number(double number) {
  if (!std::isfinite(number)) {
    return "not finite";
  }
  constexpr std::array<const char*, 6> kPrefixes = {"", " k", " M", " G", " T", " P"};
  std::size_t prefix = 0;
  while (std::abs(number) >= 999.5 && prefix + 1 < kPrefixes.size()) {
    number /= 1000.0;
    ++prefix;
  }
  const bool whole = prefix == 0 && number == std::floor(number);
  return format_decimal(number, whole ? 0 : decimals(number)) + kPrefixes[prefix];
}

std::string plain_number(double number) {
  if (!std::isfinite(number)) {
    return "not finite";
  }
  if (std::abs(number) >= 1e15) {
    return fmt::format("{:.3g}", number);
  }
  if (std::abs(number) >= 999.95) {
    return with_thousands(std::llround(number));
  }
  constexpr double kShare = 0.99995;  // smaller values, such as accuracies, get more digits
  return format_decimal(number, std::abs(number) < kShare ? 4 : std::abs(number) < 99.995 ? 2 : 1);
}

}  // namespace headroom::draw
