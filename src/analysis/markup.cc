#include "markup.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "headroom/core/svg.h"
#include "headroom/core/utf8.h"

namespace headroom::analysis {
namespace {

std::string with_thousands(long long number) {
  std::string digits = std::to_string(number);
  for (std::ptrdiff_t at = std::ssize(digits) - 3; at > (number < 0 ? 1 : 0); at -= 3) {
    digits.insert(static_cast<std::size_t>(at), 1, ',');
  }
  return digits;
}

// Digits after the point that leave three significant ones.
int decimals(double number) {
  const double magnitude = std::abs(number);
  return magnitude >= 99.95 ? 0 : magnitude >= 9.995 ? 1 : 2;
}

// Digits after the point that leave two of a spread.
int digits_for(double spread) {
  return spread > 0.0 ? std::clamp(1 - static_cast<int>(std::floor(std::log10(spread))), 0, 9) : 2;
}

}  // namespace

std::string shorten(std::string_view text, std::size_t characters) {
  const std::string whole = repair_utf8(text);
  std::vector<std::size_t> starts;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    if (!continues_character(whole[i])) {
      starts.push_back(i);
    }
  }
  if (starts.size() <= characters) {
    return whole;
  }
  // The middle goes: what tells names apart is often their end.
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
  return fmt::format("{:.{}f}{}", number, whole ? 0 : decimals(number), kPrefixes[prefix]);
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
  constexpr double kShare = 0.99995;  // below, as accuracies are, two digits are too few
  return fmt::format("{:.{}f}", number, std::abs(number) < kShare ? 4 : std::abs(number) < 99.995 ? 2 : 1);
}

std::string with_deviation(double mean, double deviation) {
  if (!std::isfinite(mean) || !(deviation > 0.0)) {
    return plain_number(mean);
  }
  const int digits = digits_for(deviation);
  return fmt::format("{:.{}f} \u00b1 {:.{}f}", mean, digits, deviation, digits);
}

std::string interval_text(const Interval& interval) {
  const int digits = digits_for((interval.high - interval.low) / 2.0);
  return fmt::format("{:.{}f} [{:.{}f}, {:.{}f}]", interval.mean, digits, interval.low, digits, interval.high, digits);
}

std::optional<double> as_number(const std::string& text) {
  double number = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

std::string ratio_text(double ratio) {
  return std::isfinite(ratio) ? fmt::format("{:.3g}x", ratio) : "not finite";
}

std::string counted(std::size_t count, std::string_view thing) {
  return fmt::format("{} {}{}", count, thing, count == 1 ? "" : "s");
}

std::string enumerated(const std::vector<std::string>& items) {
  std::string text;
  for (std::size_t i = 0; i < items.size(); ++i) {
    text += i == 0 ? "" : i + 1 == items.size() ? " and " : ", ";
    text += items[i];
  }
  return text;
}

}  // namespace headroom::analysis
