// A completion request in progress: the engine's thread generates the answers while the connection's thread waits.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headroom/decode/engine.h"
#include "headroom/decode/generate.h"
#include "served_model.h"
#include "tools/serve/json_fields.h"

namespace headroom::serve {

std::int64_t characters(std::string_view text);

// Passes a token to the stream. Returns the text that it completes, and how many characters of this text are bytes of
// earlier tokens that turned out not to begin a character.
std::pair<std::string, std::int64_t> push_token(decode::TextStream& stream, std::int32_t id);

// Ends a text before the first of several stop strings, even if they span pieces.
class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // Returns the text that can no longer be part of a stop string; empty after stopped().
  std::string push(std::string_view piece);
  // Returns the text still held back. Called when the answer ends without a stop string.
  std::string finish();
  bool stopped() const { return stopped_; }

 private:
  std::size_t first_stop() const;
  std::size_t partial_stop() const;

  std::vector<std::string> stops_;
  std::string held_;  // may be the start of a stop string
  bool stopped_ = false;
};

// A token of an answer, with its log-probabilities or routing.
struct TokenDetails {
  decode::TokenEvent event;
  std::int64_t offset = 0;  // position in the answer, in characters; not set for tokens of the prompt
};

// The text and tokens that a step adds to an answer.
struct Delta {
  std::size_t choice = 0;  // index of the answer
  std::string text;
  std::vector<TokenDetails> tokens;
  std::string finish_reason;  // "stop" or "length"; empty while the answer continues

  bool empty() const { return text.empty() && tokens.empty() && finish_reason.empty(); }
};

struct ChoiceOptions {
  const tokenizers::Tokenizer* tokenizer = nullptr;
  std::vector<std::int32_t> before;  // the prompt's last tokens, which affect the text of the first new ones
  std::vector<std::string> stop;
  std::set<std::int32_t> ends;  // the tokens that end the answer
  bool details = false;         // report details of each token
};

class Choice {
 public:
  explicit Choice(ChoiceOptions options);

  // Returns what the token adds. Must not be called after a delta with a finish_reason.
  Delta take(const decode::TokenEvent& event);
  // Returns the remaining text once max_tokens have been generated.
  Delta finish();
  std::int64_t written() const { return written_; }  // tokens

 private:
  Delta release(std::string text);

  ChoiceOptions options_;
  decode::TextStream stream_;
  StopStrings stop_;
  std::vector<TokenDetails> pending_;        // tokens whose text has not been released
  std::vector<std::int64_t> ends_;           // where each of them ends, in characters
  std::int64_t decoded_ = 0, released_ = 0;  // characters
  std::int64_t written_ = 0;                 // tokens
};

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
