// The state of a request that is being served, and the recorder of its routing.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "foundation/core/random.h"
#include "headroom/decode/engine.h"
#include "headroom/models/decoding.h"
#include "headroom/nn/observer.h"
#include "sample.h"

namespace headroom::decode {

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
  std::int64_t read = 0, emitted = 0;             // tokens of the prompt, and events for them
  std::int64_t added = 0, last = 0;               // number of tokens after the prompt, and the last of them
  at::Tensor logits;                              // [V] float32, of the next token; undefined: `last` is not read yet
  std::vector<TokenScore> scores;                 // of the prompt's tokens after the first, if asked for
  std::vector<std::vector<TokenRoute>> routes;    // of the prompt's tokens, if asked for
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

// Records the routed experts of one row's tokens.
class RouteRecorder : public nn::Observer {
 public:
  bool wants(std::string_view name) const override;
  at::Tensor observe(std::string_view name, at::Tensor value) override;
  // Routes of the last n tokens read.
  std::vector<std::vector<TokenRoute>> of_last(std::int64_t n) const;

 private:
  std::vector<std::pair<std::string, std::vector<at::Tensor>>> indices_;  // in the order of the layers, [tokens, H, K]
};

}  // namespace headroom::decode
