// Continuous batching: requests that come and go are continued together, one step of the model for all of them.
//
// What a request gets does not depend on who else is served, bit for bit on the CPU: rows of one token are computed as
// each would be alone, a prompt is read in pieces of one length from its beginning on, whatever else happens in
// between, and what the prefix cache gives is the state at the end of such a piece, which is what reading gives.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "headroom/models/language_model.h"
#include "headroom/nn/context.h"

namespace headroom::decode {

struct Request {
  std::vector<std::int64_t> prompt;  // token ids, at least one
  std::int64_t max_tokens = 16;      // to add; 0: only the prompt is read
  double temperature = 1.0;          // 0: always the likeliest
  std::int64_t top_k = 0;            // keep only the k likeliest; 0: all
  double top_p = 1.0;                // keep the fewest likeliest that reach this probability
  std::uint64_t seed = 1;
  bool echo = false;           // an event for every token of the prompt as well
  std::int64_t logprobs = -1;  // of how many of the likeliest tokens; 0: of the token alone; -1: none
  bool routing = false;        // the experts that each token took, where tokens are routed
};

struct Alternative {
  std::int64_t id = 0;
  double logprob = 0.0;
};

// What a layer chose for a token: K experts of each of n_heads heads, one head after another.
struct TokenRoute {
  std::string name;  // "layer3.attention.select_in", see nn/observer.h
  std::int64_t n_heads = 1;
  std::vector<std::int64_t> experts;
};

struct TokenEvent {
  std::int64_t id = 0;
  bool is_prompt = false;
  // With logprobs, under the model's own distribution (temperature 1, nothing cut off), in nats; of the first token of
  // a prompt it is NaN and `top` is empty, because nothing is before it.
  double logprob = 0.0;
  // Likeliest first, of equals the token itself first and then the smaller id: a token that none is likelier than is
  // the first.
  std::vector<Alternative> top;
  std::vector<TokenRoute> routes;  // with routing: what the layers chose for this token when they read it
};

enum class Finish {
  length,     // max_tokens are there
  stopped,    // on_token said so
  cancelled,  // cancel() said so
  failed      // see Ending::error
};

struct Ending {
  Finish reason = Finish::length;
  std::string error;  // of a request that failed: what was wrong with it, the others go on
};

struct EngineOptions {
  std::int64_t max_rows = 8;             // requests that are read or continued at the same time
  std::int64_t prompt_chunk = 128;       // tokens of a prompt that are read at once, at most
  double prompt_share = 2.0;             // time of a step for prompts, relative to its other tokens'; 0: one piece
  std::int64_t prefix_cache_tokens = 0;  // of prompts that are kept for others that begin alike; 0: none
  nn::Context context;
};

struct EngineCounts {
  std::int64_t waiting = 0, running = 0;  // requests now
  std::int64_t prefix_held = 0;           // tokens in the prefix cache now
  std::int64_t cache_numbers = 0;         // that the running requests' caches have room for now
  // Since the engine was made:
  std::int64_t steps = 0;
  std::int64_t finished = 0;       // requests, however they ended
  std::int64_t prompt_tokens = 0;  // of prompts, those found in the prefix cache included
  std::int64_t generated_tokens = 0;
  std::int64_t prefix_tokens = 0;    // of prompts, found in the prefix cache
  std::int64_t prefix_requests = 0;  // that found something there
};

// Used by one thread: callbacks come from within step() and may call add() and cancel().
class Engine {
 public:
  using Handle = std::uint64_t;
  using OnToken = std::function<bool(const TokenEvent&)>;  // false: enough
  using OnFinish = std::function<void(const Ending&)>;     // once, the last that is heard of a request

  // `model` must outlive the engine. Throws UserError for options out of range.
  Engine(const models::LanguageModel& model, EngineOptions options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Waits for a place; first come, first served. Throws UserError where an option is out of range, the prompt is
  // empty or holds an id that the model does not know.
  Handle add(Request request, OnToken on_token, OnFinish on_finish);
  // The request ends: at once, or, when a callback says so, with the step. One that has ended already is left alone.
  void cancel(Handle handle);
  // One token more of each request that is continued, then pieces of prompts, in the order in which they came: a single
  // one where nobody is continued, else for prompt_share times as long as the others' tokens took. At 2.0 a prompt is
  // read in at most half as much time again as alone, and those who write go on. False: there was nothing to do.
  bool step();

  EngineCounts counts() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace headroom::decode
