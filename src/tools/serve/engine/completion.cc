#include "completion.h"

#include <algorithm>
#include <random>

#include "foundation/core/machine/log.h"
#include "foundation/core/text/utf8.h"

namespace headroom::serve {
namespace {

// The number of preceding tokens passed to the decoder, because the text of a token can depend on them.
constexpr std::int64_t kTokensBefore = 8;

std::int64_t any_seed() {
  std::random_device device;
  return static_cast<std::int64_t>((std::uint64_t{device()} << 31U) ^ device());
}

}  // namespace

Completion::Completion(const ServedModel& model, CompletionRequest request, std::function<bool()> client_gone)
    : model_(model),
      request_(std::move(request)),
      client_gone_(std::move(client_gone)),
      seed_(request_.seed.value_or(any_seed())) {
  if (request_.routing && !model_.routes()) {
    refuse_field("routing", "model {} has no routed experts or heads", model_.name());
  }
  for (const Prompt& prompt : request_.prompts) {
    const std::string field = request_.prompts.size() == 1 ? "prompt" : fmt::format("prompt[{}]", prompts_.size());
    prompts_.push_back(model_.prompt_ids(prompt, request_.max_tokens, field));
  }
}

std::optional<Delta> Completion::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !deltas_.empty() || done_ || error_; });
  if (!deltas_.empty()) {
    Delta delta = std::move(deltas_.front());
    deltas_.pop_front();
    return delta;
  }
  if (error_) {
    throw ApiError(*error_);
  }
  return std::nullopt;
}

std::int64_t Completion::written() const {
  const std::lock_guard lock(mutex_);
  return written_;
}

decode::Request Completion::engine_request(std::size_t prompt, std::int64_t answer) const {
  // With a given seed, a prompt gives the same answers alone and in a list.
  const std::int64_t number = answer + (request_.seed ? 0 : static_cast<std::int64_t>(prompt) * request_.n);
  return {.prompt = prompts_[prompt],
          .max_tokens = request_.max_tokens,
          .temperature = request_.temperature,
          .top_k = request_.top_k,
          .top_p = request_.top_p,
          .seed = static_cast<std::uint64_t>(seed_) + static_cast<std::uint64_t>(number),
          .echo = request_.echo && request_.details(),
          .logprobs = request_.logprobs,
          .routing = request_.routing};
}

void Completion::start(decode::Engine& engine) {
  finished_.assign(static_cast<std::size_t>(answers()), false);
  for (std::size_t prompt = 0; prompt < prompts_.size(); ++prompt) {
    const TokenIds& ids = prompts_[prompt];
    const auto first = std::max<std::ptrdiff_t>(0, std::ssize(ids) - kTokensBefore);
    for (std::int64_t answer = 0; answer < request_.n; ++answer) {
      choices_.emplace_back(ChoiceOptions{.tokenizer = &model_.tokenizer(),
                                          .before = {ids.begin() + first, ids.end()},
                                          .stop = request_.stop,
                                          .ends = model_.ends(),
                                          .details = request_.details()});
    }
  }
  for (std::size_t choice = 0; choice < choices_.size(); ++choice) {
    const std::size_t prompt = choice / static_cast<std::size_t>(request_.n);
    const auto answer = static_cast<std::int64_t>(choice % static_cast<std::size_t>(request_.n));
    handles_.push_back(engine.add(
        engine_request(prompt, answer), [this, choice](const decode::TokenEvent& event) { return take(choice, event); },
        [this, choice](const decode::Ending& ending) { finish(choice, ending); }));
    ++open_;
  }
}

void Completion::cancel(decode::Engine& engine) {
  for (std::size_t i = 0; i < handles_.size(); ++i) {  // the handles that start() added
    if (!finished_[i]) {
      engine.cancel(handles_[i]);
    }
  }
}

void Completion::fail(const ApiError& error) {
  {
    const std::lock_guard lock(mutex_);
    if (!error_) {
      error_ = error;
    }
  }
  changed_.notify_all();
}

bool Completion::take(std::size_t choice, const decode::TokenEvent& event) {
  if (!event.is_prompt && !first_token_) {
    first_token_ = Clock::now();
  }
  Delta delta = choices_[choice].take(event);
  delta.choice = choice;
  const bool more = delta.finish_reason.empty();
  if (!more) {
    finished_[choice] = true;
  }
  if (!delta.empty()) {
    put(std::move(delta));
  }
  return more;
}

void Completion::finish(std::size_t choice, const decode::Ending& ending) {
  --open_;
  if (ending.reason == decode::Finish::failed) {
    log_warning("serve: {}: {}", model_.name(), ending.error);
    fail(error_of_status(500));
  } else if (ending.reason == decode::Finish::length && !finished_[choice]) {
    Delta delta = choices_[choice].finish();
    delta.choice = choice;
    put(std::move(delta));
  }
  finished_[choice] = true;
  {
    const std::lock_guard lock(mutex_);
    written_ += choices_[choice].written();
    done_ = open_ == 0;
  }
  changed_.notify_all();
}

void Completion::put(Delta delta) {
  {
    const std::lock_guard lock(mutex_);
    deltas_.push_back(std::move(delta));
  }
  changed_.notify_all();
}

std::int64_t characters(std::string_view text) {
  return static_cast<std::int64_t>(count_characters(text));
}

std::pair<std::string, std::int64_t> push_token(decode::TextStream& stream, std::int32_t id) {
  const std::string held = decode::TextStream(stream).finish();
  std::string text = stream.push(id);
  // Otherwise the token completes a character that the held bytes begin.
  const std::int64_t before = text.starts_with(held) ? characters(held) : 0;
  return {std::move(text), before};
}

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
  const auto [text, before] = push_token(stream_, static_cast<std::int32_t>(event.id));
  if (options_.details) {
    pending_.push_back({event, decoded_ + before});
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
