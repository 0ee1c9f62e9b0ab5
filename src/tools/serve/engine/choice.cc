#include "choice.h"

#include <utility>

#include "foundation/core/text/utf8.h"

namespace headroom::serve {
namespace {

std::int64_t characters(std::string_view text) {
  return static_cast<std::int64_t>(count_characters(text));
}

}  // namespace

Choice::Choice(ChoiceOptions options)
    : options_(std::move(options)), stream_(*options_.tokenizer, options_.before), stop_(options_.stop) {}

Piece Choice::take(const decode::TokenEvent& event) {
  if (event.is_prompt) {
    Piece piece;
    if (options_.details) {
      piece.tokens.push_back({event, 0});
    }
    return piece;
  }
  ++written_;
  if (event.id == options_.end_id) {
    Piece piece = finish();
    piece.finish_reason = "stop";
    return piece;
  }
  const std::string text = stream_.push(static_cast<std::int32_t>(event.id));
  if (options_.details) {
    held_.push_back({event, seen_});
    ends_.push_back(seen_ + characters(text));
  }
  seen_ += characters(text);
  return released(stop_.push(text));
}

Piece Choice::finish() {
  const std::string rest = stream_.finish();
  Piece piece = released(stop_.push(rest));
  if (!piece.finish_reason.empty()) {
    return piece;
  }
  piece.text += stop_.finish();
  for (ShownToken& token : held_) {
    piece.tokens.push_back(std::move(token));
  }
  held_.clear();
  piece.finish_reason = "length";
  return piece;
}

// The text, and the tokens that it holds the whole of; of a text that was stopped also the token that it was cut in.
Piece Choice::released(std::string text) {
  Piece piece;
  out_ += characters(text);
  piece.text = std::move(text);
  std::size_t shown = 0;
  while (shown < held_.size() && (stop_.stopped() ? held_[shown].offset < out_ : ends_[shown] <= out_)) {
    piece.tokens.push_back(std::move(held_[shown++]));
  }
  held_.erase(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(shown));
  ends_.erase(ends_.begin(), ends_.begin() + static_cast<std::ptrdiff_t>(shown));
  if (stop_.stopped()) {
    piece.finish_reason = "stop";
  }
  return piece;
}

}  // namespace headroom::serve
