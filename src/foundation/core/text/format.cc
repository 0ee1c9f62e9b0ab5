#include "format.h"

#include <fmt/format-inl.h>
#include <openssl/evp.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <iterator>
#include <optional>
#include <type_traits>
#include <utility>

#include "headroom/core/error.h"
#include "utf8.h"

// The non-template core of fmt, instantiated here instead of in every file that formats text.
FMT_BEGIN_NAMESPACE

template FMT_API auto detail::thousands_sep_impl<char>(locale_ref) -> detail::thousands_sep_result<char>;
template FMT_API auto detail::decimal_point_impl(locale_ref) -> char;
template FMT_API auto detail::dragonbox::to_decimal(float x) noexcept -> detail::dragonbox::decimal_fp<float>;
template FMT_API auto detail::dragonbox::to_decimal(double x) noexcept -> detail::dragonbox::decimal_fp<double>;

FMT_END_NAMESPACE

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

constexpr std::size_t kLongestQuote = 600, kLongestMessage = 4000;  // bytes: of one argument, of the whole message

bool is_control(char32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0);
}

bool acts_on_terminals(char32_t code) {
  const bool separator = code == 0x2028 || code == 0x2029;
  const bool direction = code == 0x061c || code == 0x200e || code == 0x200f || (code >= 0x202a && code <= 0x202e) ||
                         (code >= 0x2066 && code <= 0x2069);
  return is_control(code) || separator || direction;
}

std::string escaped(char32_t code) {
  const auto number = static_cast<std::uint32_t>(code);
  switch (code) {
    case U'\n':
      return "\\n";
    case U'\r':
      return "\\r";
    case U'\t':
      return "\\t";
    default:
      return code < 0x80 ? fmt::format("\\x{:02x}", number) : fmt::format("\\u{{{:x}}}", number);
  }
}

// Returns a message argument made printable; nullopt if it is not text.
template <class Value>
std::optional<std::string> text_of(const Value& value) {
  if constexpr (std::is_same_v<Value, char>) {
    return printable(std::string_view(&value, 1), kLongestQuote);
  } else if constexpr (std::is_same_v<Value, fmt::string_view>) {
    return printable({value.data(), value.size()}, kLongestQuote);
  } else if constexpr (std::is_convertible_v<const Value&, std::string_view>) {
    return printable(value, kLongestQuote);
  } else {
    return std::nullopt;
  }
}

// Returns the Damerau-Levenshtein distance (optimal string alignment).
std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Three rows of the table, since transpositions refer to the row before the last.
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) {
    row[j] = j;
  }
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before.swap(last);
    last.swap(row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replaced, last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
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

std::string printable(std::string_view text, std::size_t longest) {
  std::string shown;
  std::size_t fitting = 0;  // length of the longest prefix of `shown` that leaves room for "..."
  constexpr std::string_view kDots = "...";
  while (!text.empty()) {
    const CodePoint character = first_code_point(text);
    const std::size_t length = character.size == 0 ? 1 : character.size;
    const std::string piece = character.size == 0 ? fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]))
                              : acts_on_terminals(character.code) ? escaped(character.code)
                                                                  : std::string(text.substr(0, length));
    if (shown.size() + piece.size() > longest) {
      return shown.substr(0, fitting).append(kDots);
    }
    shown += piece;
    fitting = shown.size() + kDots.size() <= longest ? shown.size() : fitting;
    text.remove_prefix(length);
  }
  return shown;
}

std::string harmless(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const CodePoint character = first_code_point(text);
    const std::size_t length = character.size == 0 ? 1 : character.size;
    const bool spelled = is_control(character.code) && character.code != U'\n' && character.code != U'\t';
    shown += character.size > 0 && spelled ? escaped(character.code) : std::string(text.substr(0, length));
    text.remove_prefix(length);
  }
  return shown;
}

std::string nearest(std::string_view wrong, const std::vector<std::string>& candidates) {
  if (wrong.size() > 200) {
    return {};
  }
  // Accepts distances of up to a third of the length (or 2 if that is more), but at most half the length.
  std::size_t best = std::min(std::max<std::size_t>(2, wrong.size() / 3), wrong.size() / 2) + 1;
  std::string found;
  for (const std::string& candidate : candidates) {
    const std::size_t longer = std::max(wrong.size(), candidate.size()),
                      shorter = std::min(wrong.size(), candidate.size());
    if (longer - shorter >= best) {
      continue;
    }
    const std::size_t distance = edit_distance(wrong, candidate);
    if (distance < best) {
      best = distance;
      found = candidate;
    }
  }
  return found;
}

std::string download_hint(std::string_view name) {
  for (const std::string_view scheme : {"http:/", "https:/", "ftp:/", "hf:/", "s3:/", "gs:/"}) {
    if (name.find(scheme) != std::string_view::npos) {
      return "; Headroom reads local files only, download it first";
    }
  }
  return {};
}

namespace detail {

std::string message(fmt::string_view format, fmt::format_args arguments) {
  std::deque<std::string> texts;  // elements must not move: arguments refer to them
  std::vector<fmt::basic_format_arg<fmt::context>> safe;
  for (int i = 0; const auto argument = arguments.get(i); ++i) {
    std::optional<std::string> text = argument.visit([](const auto& value) { return text_of(value); });
    if (text) {
      texts.push_back(std::move(*text));
      safe.emplace_back(fmt::string_view(texts.back()));
    } else {
      safe.push_back(argument);
    }
  }
  return printable(fmt::vformat(format, fmt::format_args(safe.data(), static_cast<int>(safe.size()))), kLongestMessage);
}

}  // namespace detail

}  // namespace headroom
