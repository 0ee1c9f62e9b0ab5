// Tokens to vectors, with the position schemes that are added to them.
#pragma once

#include <ATen/ATen.h>

#include "headroom/config/model_options.h"
#include "headroom/nn/context.h"
#include "headroom/nn/parameters.h"

namespace headroom::models {

class Embedding {
 public:
  // Parameters "embed" [V, d] and, with learned positions, "position" [context_length, d].
  Embedding(const config::ModelOptions& options, const nn::Builder& build);
  // [B, n] tokens to [B, n, d]; the first one stands at `first` of its chunk. Throws Error beyond context_length.
  at::Tensor operator()(const at::Tensor& tokens, std::int64_t first, const nn::Context& context) const;
  const at::Tensor& matrix() const { return embed_; }

 private:
  double dropout_;
  std::int64_t context_length_;
  at::Tensor embed_, position_;  // positions: learned, or sinusoids, or none
};

}  // namespace headroom::models
