// The masked language model of MoA's tables, an encoder in the manner of RoBERTa: hidden tokens are predicted from
// those on both sides.
//
// Shapes: B batch, T tokens, d d_model, V vocabulary.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>

#include "headroom/models/model.h"

namespace headroom::models {

// Embedding with positions and a norm, blocks without causal mask, final norm; head: act(x W + b) with the MLP's
// activation, norm, scores of the vocabulary. Which tokens are hidden, and by what, is the caller's to choose.
class MaskedLanguageModel : public Model {
 public:
  // `seed` fixes every parameter. Throws UserError for another kind of model.
  MaskedLanguageModel(const config::ModelOptions& options, const nn::Beginning& beginning);
  MaskedLanguageModel(const config::ModelOptions& options, std::uint64_t seed,
                      at::TensorOptions tensor_options = at::kFloat)
      : MaskedLanguageModel(options, nn::Beginning(seed, tensor_options)) {}
  ~MaskedLanguageModel() override;
  MaskedLanguageModel(MaskedLanguageModel&&) noexcept;

  const config::ModelOptions& options() const override;
  nn::Parameters& parameters() override;
  const nn::Parameters& parameters() const override;
  Batch example(std::int64_t rows, std::uint64_t seed) const override;

  // Batch: "tokens", "valid" (without it: all are), "hidden" [B, T] int64: the original tokens of hidden places, -1
  // elsewhere.
  Loss loss(const Batch& batch, Memory& memory, const nn::Context& context) const override;

  // `tokens` [B, T] int64, T up to context_length; `valid` [B, T] bool, undefined: all are tokens, none is padding.
  // Logits [B, T, V]. Throws Error on other shapes.
  at::Tensor logits(const at::Tensor& tokens, const at::Tensor& valid, const nn::Context& context) const;
  // `targets` [B, T] int64: the original tokens of hidden places, below 0 everywhere else. Scores are computed for
  // hidden places only.
  Loss loss(const at::Tensor& tokens, const at::Tensor& valid, const at::Tensor& targets,
            const nn::Context& context) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace headroom::models
