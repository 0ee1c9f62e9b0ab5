// The state of one request in the engine, and a recorder of its routed experts.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "foundation/core/random.h"
#include "headroom/decode/engine.h"
#include "headroom/models/decoding.h"
#include "headroom/nn/observer.h"

namespace headroom::decode {

struct SampleOptions {
  double temperature = 1.0;  // 0: the most likely token; ties go to the smallest id
  std::int64_t top_k = 0;    // 0: all
  double top_p = 1.0;
};

// Throws UserError if an option is out of range. The message starts with `what`.
void check_sampling(const SampleOptions& options, std::string_view what);

// Draws a token from logits [V]. Computes in double and in a fixed order, so that a seed gives the same text with any
// number of threads. Throws Error if the logits are not finite.
std::int32_t sample(std::span<const float> logits, const SampleOptions& options, Random& random);

struct TokenScore {
  double logprob = 0.0;
  std::vector<Alternative> top;
};

// Returns the log-probability of `token` and the `count` most likely tokens at its position, from the log-probabilities
// `log_p` [V]. Ties go to `token`, then to the smaller id.
TokenScore score_of(std::int64_t token, std::span<const float> log_p, std::int64_t count);

struct Row {
  Row(Engine::Handle h, Request r, Engine::OnToken token, Engine::OnFinish finish)
      : handle(h),
        request(std::move(r)),
        on_token(std::move(token)),
        on_finish(std::move(finish)),
        random(request.seed) {}

  Engine::Handle handle;
  Request request;
  Engine::OnToken on_token;
  Engine::OnFinish on_finish;
  Random random;

  models::DecodeState state;
  bool begun = false;                             // whether `state` has been set
  std::int64_t read = 0, emitted = 0;             // prompt tokens read, and prompt events emitted
  std::int64_t added = 0, last = 0;               // number of generated tokens, and the last one
  at::Tensor logits;                              // [V] float32, for the next token; undefined until `last` is read
  std::vector<TokenScore> scores;                 // of all prompt tokens but the first, if requested
  std::vector<std::vector<TokenRoute>> routes;    // of all prompt tokens, if requested
  std::optional<models::DecodeState> last_chunk;  // state at the prompt's last chunk end, for the prefix cache
  std::optional<Ending> ending;

  bool reads_prompt() const { return read < std::ssize(request.prompt); }
  bool scores_prompt() const { return request.echo && request.logprobs >= 0; }
  bool routes_prompt() const { return request.echo && request.routing; }

  void end(Finish reason, std::string error = "") {
    if (!ending) {
      ending = Ending{reason, std::move(error)};
    }
  }
  void emit(const TokenEvent& event) {
    if (!ending && !on_token(event)) {
      end(Finish::stopped);
    }
  }
};

// Records the routed experts of each token in one row.
class RouteRecorder : public nn::Observer {
 public:
  bool wants(std::string_view name) const override;
  at::Tensor observe(std::string_view name, at::Tensor value) override;
  // Returns the routes of the last n tokens read.
  std::vector<std::vector<TokenRoute>> of_last(std::int64_t n) const;

 private:
  std::vector<std::pair<std::string, std::vector<at::Tensor>>> indices_;  // by layer, in order; [tokens, H, K]
};

}  // namespace headroom::decode
