#include "headroom/decode/text_stream.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "foundation/core/text/utf8.h"

namespace headroom::decode {
namespace {

// A code point has at most four bytes: text that does not become whole within as many tokens never will.
constexpr std::size_t kLongestWait = 4;

}  // namespace

TextStream::TextStream(const tokenizers::Tokenizer& tokenizer, std::vector<std::int32_t> context)
    : tokenizer_(tokenizer), ids_(std::move(context)), released_(ids_.size()) {}

std::string TextStream::push(std::int32_t id) {
  ids_.push_back(id);
  const std::string text = pending();
  const bool unfinished = unfinished_bytes(text) > 0 || text.ends_with(kReplacement);
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

}  // namespace headroom::decode
