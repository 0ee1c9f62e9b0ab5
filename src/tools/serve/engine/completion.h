// A request for completions on its way: the connection's thread waits for what the engine's thread writes.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "choice.h"
#include "served_model.h"
#include "tools/serve/api/api_error.h"
#include "tools/serve/api/completion_request.h"

namespace headroom::serve {

class Completion {
 public:
  using Clock = std::chrono::steady_clock;

  // Throws ApiError for a request that the model cannot answer. `gone`: whether the client has gone away; called by the
  // engine's thread.
  Completion(const ServedModel& model, CompletionRequest request, std::function<bool()> gone);

  const ServedModel& model() const { return model_; }
  const CompletionRequest& request() const { return request_; }
  const std::vector<TokenIds>& prompts() const { return prompts_; }
  std::int64_t answers() const { return static_cast<std::int64_t>(prompts_.size()) * request_.n; }
  Clock::time_point arrived() const { return arrived_; }

  // For the connection's thread: waits for what comes next; none: all answers are finished. Throws ApiError where they
  // cannot be. Pieces of one answer come in their order.
  std::optional<Piece> next();
  // Nobody waits for it any more: the engine ends it within a step. Whether that is news; from any thread.
  bool abandon() { return !abandoned_.exchange(true); }
  std::int64_t written() const;  // tokens of finished answers

  // For the engine's thread.
  void start(decode::Engine& engine);
  void cancel(decode::Engine& engine);
  void fail(const ApiError& error);  // what next() throws, once
  bool unwanted() const { return abandoned_ || gone_(); }
  bool ended() const { return open_ == 0; }
  std::optional<Clock::time_point> first_token() const { return first_token_; }

 private:
  decode::Request engine_request(std::size_t prompt, std::int64_t answer) const;
  bool take(std::size_t choice, const decode::TokenEvent& event);
  void finish(std::size_t choice, const decode::Ending& ending);
  void put(Piece piece);

  const ServedModel& model_;
  CompletionRequest request_;
  std::function<bool()> gone_;
  std::vector<TokenIds> prompts_;
  std::int64_t seed_;
  Clock::time_point arrived_ = Clock::now();
  std::atomic<bool> abandoned_{false};

  // Of the engine's thread.
  std::vector<Choice> choices_;
  std::vector<bool> finished_;
  std::vector<decode::Engine::Handle> handles_;
  std::int64_t open_ = 0;
  std::optional<Clock::time_point> first_token_;

  // Between the two.
  mutable std::mutex mutex_;
  std::condition_variable news_;
  std::deque<Piece> pieces_;
  std::optional<ApiError> error_;
  bool done_ = false;
  std::int64_t written_ = 0;
};

}  // namespace headroom::serve
