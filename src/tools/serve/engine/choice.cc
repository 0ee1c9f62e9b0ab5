#include "choice.h"

#include <algorithm>
#include <utility>

#include "foundation/core/text/utf8.h"

namespace headroom::serve {
namespace {

std::int64_t characters(std::string_view text) {
  return static_cast<std::int64_t>(count_characters(text));
}

}  // namespace

std::string StopStrings::push(std::string_view piece) {
  if (stopped_) {
    return {};
  }
  if (stops_.empty()) {
    return std::string(piece);
  }
  held_ += piece;
  std::size_t sure = first_stop();
  stopped_ = sure != std::string::npos;
  if (!stopped_) {
    sure = held_.size() - partial_stop();
  }
  std::string text = held_.substr(0, sure);
  held_.erase(0, sure);
  return text;
}

std::string StopStrings::finish() {
  return stopped_ ? std::string() : std::exchange(held_, {});
}

std::size_t StopStrings::first_stop() const {
  std::size_t first = std::string::npos;
  for (const std::string& stop : stops_) {
    first = std::min(first, held_.find(stop));
  }
  return first;
}

// Returns the length of the longest suffix of the held text that is a prefix of a stop string.
std::size_t StopStrings::partial_stop() const {
  const std::string_view held = held_;
  std::size_t longest = 0;
  for (const std::string& stop : stops_) {
    for (std::size_t size = std::min(stop.size() - 1, held.size()); size > longest; --size) {
      if (held.ends_with(std::string_view(stop).substr(0, size))) {
        longest = size;
      }
    }
  }
  return longest;
}

Choice::Choice(ChoiceOptions options)
    : options_(std::move(options)), stream_(*options_.tokenizer, options_.before), stop_(options_.stop) {}

Delta Choice::take(const decode::TokenEvent& event) {
  if (event.is_prompt) {
    Delta delta;
    if (options_.details) {
      delta.tokens.push_back({event, 0});
    }
    return delta;
  }
  ++written_;
  if (options_.ends.contains(static_cast<std::int32_t>(event.id))) {
    Delta delta = finish();
    delta.finish_reason = "stop";
    return delta;
  }
  const std::string text = stream_.push(static_cast<std::int32_t>(event.id));
  if (options_.details) {
    pending_.push_back({event, decoded_});
    ends_.push_back(decoded_ + characters(text));
  }
  decoded_ += characters(text);
  return release(stop_.push(text));
}

Delta Choice::finish() {
  const std::string rest = stream_.finish();
  Delta delta = release(stop_.push(rest));
  if (!delta.finish_reason.empty()) {
    return delta;
  }
  delta.text += stop_.finish();
  for (TokenDetails& token : pending_) {
    delta.tokens.push_back(std::move(token));
  }
  pending_.clear();
  delta.finish_reason = "length";
  return delta;
}

// Returns the text with the tokens that lie entirely in it. A stop string may cut off the last token.
Delta Choice::release(std::string text) {
  Delta delta;
  released_ += characters(text);
  delta.text = std::move(text);
  std::size_t shown = 0;
  while (shown < pending_.size() &&
         (stop_.stopped() ? pending_[shown].offset < released_ : ends_[shown] <= released_)) {
    delta.tokens.push_back(std::move(pending_[shown++]));
  }
  pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(shown));
  ends_.erase(ends_.begin(), ends_.begin() + static_cast<std::ptrdiff_t>(shown));
  if (stop_.stopped()) {
    delta.finish_reason = "stop";
  }
  return delta;
}

}  // namespace headroom::serve
