#include "headroom/models/embedding.h"

#include <cmath>

#include "headroom/core/error.h"
#include "headroom/nn/linear.h"
#include "headroom/nn/position.h"

namespace headroom::models {

Embedding::Embedding(const config::ModelOptions& o, const nn::Builder& build)
    : dropout_(o.dropout), context_length_(o.context_length) {
  const double deviation = 1.0 / std::sqrt(static_cast<double>(o.d_model));
  embed_ = build.normal("embed", {o.vocabulary_size, o.d_model}, deviation);
  if (o.attention.position == config::Position::learned) {
    position_ = build.normal("position", {o.context_length, o.d_model}, deviation);
  } else if (o.attention.position == config::Position::sinusoidal) {
    position_ = nn::sinusoids(0, o.context_length, o.d_model, o.attention.rope_base, build.options());
  }
}

at::Tensor Embedding::operator()(const at::Tensor& tokens, std::int64_t first, const nn::Context& context) const {
  const std::int64_t n = tokens.size(1);
  if (first + n > context_length_) {
    fail("model: a sequence must hold at most context_length={} tokens, got {}", context_length_, first + n);
  }
  at::Tensor h = at::embedding(embed_, tokens);
  if (position_.defined()) {
    h = h + position_.narrow(0, first, n);
  }
  return nn::dropout(h, dropout_, context);
}

}  // namespace headroom::models
