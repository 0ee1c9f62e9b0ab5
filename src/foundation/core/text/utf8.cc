#include "utf8.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace headroom {

// Advances by one byte through the table of well-formed sequences (Unicode 3.9, Table 3-7). Only the range of the
// second byte depends on the first byte.
bool Utf8Checker::step(unsigned char byte) {
  if (missing_ > 0) {
    if (byte < low_ || byte > high_) {
      return false;
    }
    low_ = 0x80;
    high_ = 0xbf;
    --missing_;
    return true;
  }
  start_ = fed_;
  if (byte < 0x80) {
    return true;
  }
  if (byte < 0xc2 || byte > 0xf4) {
    return false;
  }
  missing_ = byte >= 0xf0 ? 3 : byte >= 0xe0 ? 2 : 1;
  low_ = byte == 0xe0 ? 0xa0 : byte == 0xf0 ? 0x90 : 0x80;
  high_ = byte == 0xed ? 0x9f : byte == 0xf4 ? 0x8f : 0xbf;
  return true;
}

std::optional<std::uint64_t> Utf8Checker::feed(std::string_view bytes) {
  constexpr std::uint64_t kHighBits = 0x8080808080808080ULL;
  for (std::size_t i = 0; i < bytes.size();) {
    std::uint64_t eight = kHighBits;
    if (missing_ == 0 && i + sizeof eight <= bytes.size()) {
      std::memcpy(&eight, bytes.data() + i, sizeof eight);
    }
    if ((eight & kHighBits) == 0) {  // fast path: most text is ASCII
      i += sizeof eight;
      fed_ += sizeof eight;
      continue;
    }
    if (!step(static_cast<unsigned char>(bytes[i]))) {
      return start_;
    }
    ++i;
    ++fed_;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> Utf8Checker::finish() const {
  return missing_ > 0 ? std::optional(start_) : std::nullopt;
}

bool is_utf8(std::string_view text) {
  Utf8Checker checker;
  return !checker.feed(text) && !checker.finish();
}

CodePoint first_code_point(std::string_view text) {
  utf8proc_int32_t code = 0;
  const utf8proc_ssize_t size =
      utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), std::ssize(text), &code);
  return size > 0 ? CodePoint{.code = static_cast<char32_t>(code), .size = static_cast<std::size_t>(size)}
                  : CodePoint();
}

void append_code_point(std::string& text, char32_t code) {
  std::array<utf8proc_uint8_t, 4> bytes{};
  const utf8proc_ssize_t size = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code), bytes.data());
  text.append(bytes.begin(), bytes.begin() + size);
}

std::size_t count_characters(std::string_view text) {
  return text.size() - static_cast<std::size_t>(std::ranges::count_if(text, continues_character));
}

namespace {

// The columns of the first character. Bytes that are not UTF-8 take one.
std::size_t columns_of(const CodePoint& first) {
  const bool joins = first.code >= 0x1160 && first.code < 0x1200;  // a vowel or end of a decomposed Hangul syllable
  const int width = first.size == 0 ? 1 : utf8proc_charwidth(static_cast<utf8proc_int32_t>(joins ? 0 : first.code));
  return static_cast<std::size_t>(std::max(width, 0));
}

}  // namespace

std::size_t display_width(std::string_view text) {
  std::size_t columns = 0;
  while (!text.empty()) {
    const CodePoint first = first_code_point(text);
    columns += columns_of(first);
    text.remove_prefix(std::max<std::size_t>(first.size, 1));
  }
  return columns;
}

std::string_view first_columns(std::string_view text, std::size_t columns) {
  std::string_view rest = text;
  while (!rest.empty()) {
    const CodePoint first = first_code_point(rest);
    const std::size_t width = columns_of(first);
    if (width > columns) {
      break;
    }
    columns -= width;
    rest.remove_prefix(std::max<std::size_t>(first.size, 1));
  }
  return text.substr(0, text.size() - rest.size());
}

std::size_t character_boundary(std::string_view text, std::size_t at) {
  constexpr std::size_t kMostContinuations = 3;
  if (at >= text.size()) {
    return text.size();
  }
  for (std::size_t back = 0; back <= std::min(at, kMostContinuations); ++back) {
    if (!continues_character(text[at - back])) {
      return at - back;
    }
  }
  return at;
}

std::size_t unfinished_bytes(std::string_view text) {
  for (std::size_t tail = 1; tail <= std::min<std::size_t>(text.size(), 3); ++tail) {
    Utf8Checker checker;
    if (!checker.feed(text.substr(text.size() - tail)) && checker.finish() == 0) {
      return tail;
    }
  }
  return 0;
}

std::string repair_utf8(std::string_view text) {
  std::string out;
  while (true) {
    Utf8Checker checker;
    std::optional<std::uint64_t> broken = checker.feed(text);
    if (!broken) {
      broken = checker.finish();
    }
    if (!broken) {
      return out.append(text);
    }
    out.append(text.substr(0, *broken)).append(kReplacement);
    text.remove_prefix(*broken + 1);
  }
}

std::size_t leading_blank(std::string_view text) {
  constexpr char32_t kFirstSeparator = 0x1c, kLastSeparator = 0x1f;
  const CodePoint first = text.empty() ? CodePoint() : first_code_point(text);
  const bool separates = first.code >= kFirstSeparator && first.code <= kLastSeparator;
  return is_white_space(first.code) || separates ? first.size : 0;
}

std::string_view without_trailing_blanks(std::string_view text) {
  while (!text.empty()) {
    const std::size_t last = character_boundary(text, text.size() - 1);
    if (leading_blank(text.substr(last)) != text.size() - last) {
      break;
    }
    text = text.substr(0, last);
  }
  return text;
}

std::string_view trimmed(std::string_view text, std::string_view blanks) {
  const std::size_t begin = std::min(text.find_first_not_of(blanks), text.size());
  return text.substr(begin, text.find_last_not_of(blanks) + 1 - begin);
}

std::string_view take_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(line.size() + 1, text.size()));
  return line;
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](char c) { return lower_case(c); });
  return lower;
}

}  // namespace headroom
