// A completion request in progress: the engine's thread generates the answers while the connection's thread waits.
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
#include "completion_request.h"
#include "served_model.h"
#include "tools/serve/json_fields.h"

namespace headroom::serve {

class Completion {
 public:
  using Clock = std::chrono::steady_clock;

  // Throws ApiError if the model cannot answer the request. The engine's thread calls `client_gone`.
  Completion(const ServedModel& model, CompletionRequest request, std::function<bool()> client_gone);

  const ServedModel& model() const { return model_; }
  const CompletionRequest& request() const { return request_; }
  const std::vector<TokenIds>& prompts() const { return prompts_; }
  std::int64_t answers() const { return static_cast<std::int64_t>(prompts_.size()) * request_.n; }
  Clock::time_point arrived() const { return arrived_; }

  // Called by the connection's thread: waits for the next delta; nullopt once all answers are finished. Deltas of one
  // answer arrive in order. Throws ApiError if the completion failed.
  std::optional<Delta> next();
  // Abandons the answers; the engine cancels them within a step. Returns whether this is the first call. Thread-safe.
  bool abandon() { return !abandoned_.exchange(true); }
  std::int64_t written() const;  // total tokens of finished answers

  // The functions below are called by the engine's thread only.
  void start(decode::Engine& engine);
  void cancel(decode::Engine& engine);
  void fail(const ApiError& error);  // makes next() throw the first of these errors
  bool abandoned() const { return abandoned_ || client_gone_(); }
  bool ended() const { return open_ == 0; }
  std::optional<Clock::time_point> first_token() const { return first_token_; }

 private:
  decode::Request engine_request(std::size_t prompt, std::int64_t answer) const;
  bool take(std::size_t choice, const decode::TokenEvent& event);
  void finish(std::size_t choice, const decode::Ending& ending);
  void put(Delta delta);

  const ServedModel& model_;
  CompletionRequest request_;
  std::function<bool()> client_gone_;
  std::vector<TokenIds> prompts_;
  std::int64_t seed_;
  Clock::time_point arrived_ = Clock::now();
  std::atomic<bool> abandoned_{false};

  // Used by the engine's thread only.
  std::vector<Choice> choices_;
  std::vector<bool> finished_;
  std::vector<decode::Engine::Handle> handles_;
  std::int64_t open_ = 0;
  std::optional<Clock::time_point> first_token_;

  // Shared by both threads, under mutex_.
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Delta> deltas_;
  std::optional<ApiError> error_;
  bool done_ = false;
  std::int64_t written_ = 0;
};

}  // namespace headroom::serve
