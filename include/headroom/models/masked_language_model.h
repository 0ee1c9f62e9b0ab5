// The masked language model of MoA's tables, an encoder like RoBERTa: predicts hidden tokens from both sides.
//
// Shapes: B batch, T tokens, d d_model, V vocabulary.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

#include "headroom/models/model.h"

namespace headroom::models {

// Embedding with positions and a norm, blocks without causal mask, final norm; head: act(x W + b) with the MLP's
// activation, norm, logits. The caller hides tokens.
class MaskedLanguageModel : public Model {
 public:
  // Throws UserError unless the options describe this kind of model.
  MaskedLanguageModel(const config::ModelOptions& options, const nn::ParameterSource& source);
  MaskedLanguageModel(const config::ModelOptions& options, std::uint64_t seed,
                      at::TensorOptions tensor_options = at::kFloat)
      : MaskedLanguageModel(options, nn::ParameterSource(seed, tensor_options)) {}

  Batch example(std::int64_t rows, std::uint64_t seed) const override;
  // Batch: "tokens", "valid" (default: all), "hidden" [B, T] int64: the original tokens at hidden positions, -1
  // elsewhere.
  Loss loss(const Batch& batch, Memory& memory, const nn::Context& context) const override;
  // Returns logits [B, T, V]. `tokens` is [B, T] int64, T up to context_length; `valid` is [B, T] bool, false for
  // padding; undefined: all. Throws Error for other shapes.
  at::Tensor logits(const at::Tensor& tokens, const at::Tensor& valid, const nn::Context& context) const;
  // `targets` is [B, T] int64: the original tokens at hidden positions, negative elsewhere. Computes logits for hidden
  // positions only.
  Loss loss(const at::Tensor& tokens, const at::Tensor& valid, const at::Tensor& targets,
            const nn::Context& context) const;

 private:
  struct Layers;
};

}  // namespace headroom::models
