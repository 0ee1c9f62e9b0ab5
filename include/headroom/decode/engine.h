// Continuous batching: requests that arrive and finish at different times share one forward pass per step.
//
// On the CPU, a request's result has the same bits whatever the other requests are: one-token rows are batch-invariant,
// every prompt is split into the same chunks, which give the same bits alone and together, and the prefix cache stores
// states at chunk boundaries.
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
  std::int64_t max_tokens = 16;      // maximum number of tokens to add; 0: only read the prompt
  double temperature = 1.0;          // 0: greedy
  std::int64_t top_k = 0;            // sample from the k most likely tokens; 0: all
  double top_p = 1.0;                // sample from the smallest set of most likely tokens with this total probability
  std::uint64_t seed = 1;
  bool echo = false;  // emit events for the prompt's tokens too
  // number of most likely tokens to report; 0: only the chosen token; -1: no log-probabilities
  std::int64_t logprobs = -1;
  bool routing = false;  // report the experts that each token is routed to
};

struct Alternative {
  std::int64_t id = 0;
  double logprob = 0.0;
};

// The routing of one token in one layer: K experts for each of n_heads heads, head by head.
struct TokenRoute {
  std::string name;  // "layer3.attention.select_in", see nn/observer.h
  std::int64_t n_heads = 1;
  std::vector<std::int64_t> experts;
};

struct TokenEvent {
  std::int64_t id = 0;
  bool is_prompt = false;
  // With logprobs: in nats, from the model's unmodified distribution (temperature 1, no cut-off). NaN, with an empty
  // `top`, for the first token of a prompt.
  double logprob = 0.0;
  // In descending order of probability; ties: this token first, then the smaller id.
  std::vector<Alternative> top;
  std::vector<TokenRoute> routes;  // the routing of this token, if requested
};

enum class Finish {
  length,     // max_tokens reached
  stopped,    // on_token returned false
  cancelled,  // by cancel()
  failed      // see Ending::error
};

struct Ending {
  Finish reason = Finish::length;
  std::string error;  // reason if the request failed; other requests continue
};

struct EngineOptions {
  std::int64_t max_rows = 8;             // requests served at the same time
  std::int64_t prompt_chunk = 128;       // maximum number of prompt tokens read in one pass, over all requests
  double prompt_share = 2.0;             // time a step spends on prompts, relative to decoding; 0: one chunk
  std::int64_t prefix_cache_tokens = 0;  // size of the prefix cache; 0: none
  nn::Context context;
};

struct EngineCounts {
  std::int64_t waiting = 0, running = 0;  // current numbers of requests
  std::int64_t prefix_held = 0;           // tokens in the prefix cache
  std::int64_t cache_elements = 0;        // elements of the running requests' KV caches
  // Since the engine was created:
  std::int64_t steps = 0;
  std::int64_t finished = 0;       // requests that ended for any reason
  std::int64_t prompt_tokens = 0;  // including those found in the prefix cache
  std::int64_t generated_tokens = 0;
  std::int64_t prefix_tokens = 0;    // found in the prefix cache
  std::int64_t prefix_requests = 0;  // requests with tokens found in the prefix cache
};

// Not thread-safe. Callbacks run inside step() and may call add() and cancel().
class Engine {
 public:
  using Handle = std::uint64_t;
  using OnToken = std::function<bool(const TokenEvent&)>;  // false ends the request
  using OnFinish = std::function<void(const Ending&)>;     // called once, as the last callback of the request

  // `model` must outlive the engine. Throws UserError for options out of range.
  Engine(const models::LanguageModel& model, EngineOptions options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Queues a request, first come, first served. Throws UserError for options out of range, an empty prompt, or an id
  // outside the vocabulary.
  Handle add(Request request, OnToken on_token, OnFinish on_finish);
  // Ends the request immediately, or at the end of the step if called from a callback. Ignored for finished requests.
  void cancel(Handle handle);
  // Decodes one token for each request whose prompt has been read, then reads chunks of prompts in the order of
  // arrival: one chunk if nothing was decoded, otherwise for prompt_share times the decoding time. Chunks of one length
  // are read in one pass, up to prompt_chunk tokens. At the default 2.0, the decoding of other requests slows the
  // reading of a prompt by at most half. Returns false if there was nothing to do.
  bool step();

  EngineCounts counts() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace headroom::decode
