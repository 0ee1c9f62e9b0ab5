// The blocks that see a whole sequence, both ways: what classifiers, masked language models, vision Transformers and
// the reading half of an encoder-decoder are built on.
#pragma once

#include <optional>
#include <vector>

#include "block.h"

namespace headroom::models {

class Encoder {
 public:
  // Parameters "layer0.*", ... and, with `final_norm`, "norm_f.*". Windows do not apply: they are causal.
  Encoder(const config::ModelOptions& options, bool final_norm, const nn::Builder& build);
  // [B, T, d] to [B, T, d]. Tokens that are not `valid` [B, T] (undefined: all are) are seen by none and routed
  // nowhere; their results mean nothing.
  at::Tensor operator()(at::Tensor h, const at::Tensor& valid, const nn::Context& context) const;

 private:
  std::vector<Block> blocks_;
  std::optional<nn::NormLayer> norm_f_;
};

// Throws Error unless `tokens` is [B, T] int64 and `valid`, when defined, a bool of the same shape.
void check_tokens(const char* model, const at::Tensor& tokens, const at::Tensor& valid);

}  // namespace headroom::models
