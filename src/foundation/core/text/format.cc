#include "format.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "headroom/core/error.h"
#include "utf8.h"

namespace headroom {
namespace {

// Selects the unit after rounding, so that 999.97 k is printed as 1.0 M.
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
  static constexpr const char* kUnits[] = {"k", "M", "G", "T", "P", "E"};
  return scaled(number / 1000.0, 1000.0, kUnits, std::size(kUnits));
}

std::string counted(std::int64_t count, std::string_view thing) {
  return fmt::format("{} {}{}", count, thing, count == 1 ? "" : "s");
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

std::string text_table(const std::vector<std::vector<std::string>>& rows, const std::vector<bool>& left) {
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const std::vector<std::string>& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], display_width(row[i]));
    }
  }
  std::string text;
  for (const std::vector<std::string>& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string blanks(widths[i] - display_width(row[i]), ' ');
      line += i == 0 ? "" : "  ";
      line += i < left.size() && left[i] ? row[i] + blanks : blanks + row[i];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

std::string last_line(std::string_view text) {
  text = text.substr(0, text.find_last_not_of('\n') + 1);
  return std::string(text.substr(text.rfind('\n') + 1));
}

std::string to_base64(std::string_view bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');  // EVP_EncodeBlock appends a NUL
  const int size =
      EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                      reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<int>(bytes.size()));
  text.resize(static_cast<std::size_t>(size));
  return text;
}

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
