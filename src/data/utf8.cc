#include "headroom/data/utf8.h"

#include <algorithm>
#include <cstring>

namespace headroom::data {

// One byte further in the table of well-formed sequences: only a second byte has limits of its own.
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
    if ((eight & kHighBits) == 0) {  // most text is ASCII
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

std::size_t character_boundary(std::string_view text, std::size_t at) {
  constexpr std::size_t kMostContinuations = 3;
  if (at >= text.size()) {
    return text.size();
  }
  for (std::size_t back = 0; back <= std::min(at, kMostContinuations); ++back) {
    if ((static_cast<unsigned char>(text[at - back]) & 0xc0) != 0x80) {
      return at - back;
    }
  }
  return at;
}

}  // namespace headroom::data
