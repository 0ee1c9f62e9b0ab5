#include "text_stream.h"

#include <algorithm>
#include <span>
#include <utility>

namespace headroom::eval {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD
// A code point has at most four bytes: text that does not become whole within as many tokens never will.
constexpr std::size_t kLongestWait = 4;

struct CodePoint {
  std::size_t length = 0;   // bytes when whole; 0 when broken
  bool unfinished = false;  // the text ends before it does
};

CodePoint code_point_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) {
    return {.length = 1};
  }
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4) {
    return {};
  }
  for (std::size_t i = 1; i < length; ++i) {
    if (at + i == text.size()) {
      return {.unfinished = true};
    }
    // The second byte also excludes overlong forms, surrogates and what lies beyond U+10FFFF.
    unsigned char low = 0x80, high = 0xbf;
    if (i == 1) {
      low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : low;
      high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : high;
    }
    if (byte(i) < low || byte(i) > high) {
      return {};
    }
  }
  return {.length = length};
}

}  // namespace

bool ends_inside_code_point(std::string_view text) {
  const std::size_t tail = std::min<std::size_t>(text.size(), 3);
  for (std::size_t at = text.size() - tail; at < text.size(); ++at) {
    if (code_point_at(text, at).unfinished) {
      return true;
    }
  }
  return false;
}

std::string repair_utf8(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = code_point_at(text, at).length;
    out += length == 0 ? kReplacement : text.substr(at, length);
    at += std::max<std::size_t>(length, 1);
  }
  return out;
}

bool is_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = code_point_at(text, at).length;
    if (length == 0) {
      return false;
    }
    at += length;
  }
  return true;
}

TextStream::TextStream(const data::Tokenizer& tokenizer, std::vector<std::int32_t> context)
    : tokenizer_(tokenizer), ids_(std::move(context)), released_(ids_.size()) {}

std::string TextStream::push(std::int32_t id) {
  ids_.push_back(id);
  const std::string text = pending();
  const bool unfinished = ends_inside_code_point(text) || text.ends_with(kReplacement);
  if (text.empty() || (unfinished && ids_.size() - released_ < kLongestWait)) {
    return {};
  }
  return release(text);
}

std::string TextStream::finish() {
  return released_ == ids_.size() ? std::string() : release(pending());
}

std::string TextStream::pending() const {
  const std::span<const std::int32_t> ids(ids_);
  const std::string before = tokenizer_.decode(ids.first(released_));
  const std::string all = tokenizer_.decode(ids);
  return all.starts_with(before) ? all.substr(before.size()) : tokenizer_.decode(ids.subspan(released_));
}

std::string TextStream::release(std::string_view text) {
  ids_.erase(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(released_));
  released_ = ids_.size();
  return repair_utf8(text);
}

}  // namespace headroom::eval
