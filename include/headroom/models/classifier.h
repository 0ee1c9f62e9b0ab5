// A Transformer encoder that puts a sequence, or a pair of them, into one of several classes (the Long Range Arena
// models of Transformer-MGK).
//
// Shapes: B batch, T tokens, C classes.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>

#include "headroom/models/class_model.h"

namespace headroom::models {

// Embedding with its positions, blocks without causal mask, final norm, mean over all T positions (padding adds 0), a
// head of one layer, or two with d_head_hidden. With `paired`, two sequences go through one encoder: features
// [a, b, a * b, a - b].
class Classifier : public ClassModel {
 public:
  // `seed` fixes every parameter. Throws UserError for another kind of model.
  Classifier(const config::ModelOptions& options, const nn::Beginning& beginning);
  Classifier(const config::ModelOptions& options, std::uint64_t seed, at::TensorOptions tensor_options = at::kFloat)
      : Classifier(options, nn::Beginning(seed, tensor_options)) {}
  ~Classifier() override;
  Classifier(Classifier&&) noexcept;

  const config::ModelOptions& options() const override;
  nn::Parameters& parameters() override;
  const nn::Parameters& parameters() const override;
  Batch example(std::int64_t rows, std::uint64_t seed) const override;

  // Batch: "tokens" and, with pairs, "second". Rows count as padded to context_length, however wide the batch is: the
  // mean is over so many positions.
  at::Tensor class_logits(const Batch& batch, const nn::Context& context) const override;
  // `tokens`, and `second` with pairs, [B, T] int64 with T up to context_length; logits [B, C]. The mean is over T.
  at::Tensor logits(const at::Tensor& tokens, const at::Tensor& second, const nn::Context& context) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace headroom::models
