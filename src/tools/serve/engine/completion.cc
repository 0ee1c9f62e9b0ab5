#include "completion.h"

#include <algorithm>
#include <random>
#include <utility>

#include "foundation/core/machine/log.h"

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

}  // namespace headroom::serve
