// A request while it is served: what it has read, and what it is told.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "foundation/core/random.h"
#include "headroom/decode/engine.h"
#include "headroom/models/decoding.h"
#include "likeliest.h"

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
  bool begun = false;                             // whether `state` is one
  std::int64_t read = 0, told = 0;                // tokens of the prompt
  std::int64_t added = 0, last = 0;               // tokens after it, and the last of them
  at::Tensor logits;                              // [V] float32, of the next token; undefined: `last` is not read yet
  std::vector<TokenScore> scores;                 // of the prompt's tokens after the first, where they are wanted
  std::vector<std::vector<TokenRoute>> routes;    // of the prompt's tokens, where they are wanted
  std::optional<models::DecodeState> last_piece;  // the state after the prompt's last whole piece, for others
  std::optional<Ending> ending;

  bool reads_prompt() const { return read < std::ssize(request.prompt); }
  bool scores_prompt() const { return request.echo && request.logprobs >= 0; }
  bool routes_prompt() const { return request.echo && request.routing; }

  void end(Finish reason, std::string error = "") {
    if (!ending) {
      ending = Ending{reason, std::move(error)};
    }
  }
  void tell(const TokenEvent& event) {
    if (!ending && !on_token(event)) {
      end(Finish::stopped);
    }
  }
};

}  // namespace headroom::decode
