// Classification models, and the Transformer encoder that classifies sequences or pairs of sequences (the Long Range
// Arena models of Transformer-MGK).
//
// Shapes: B batch, T tokens, C classes.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

#include "headroom/models/model.h"

namespace headroom::models {

class ClassModel : public Model {
 public:
  // Returns [B, n_classes]. The result of a row does not depend on other rows or on padding.
  virtual at::Tensor class_logits(const Batch& batch, const nn::Context& context) const = 0;
  // Smoothed cross-entropy with the batch's "label" [B] int64, and the balance losses. If the rows are mixtures, the
  // batch has "other_label" [B] int64 and "label_share" [B], and the loss is
  // label_share * loss(label) + (1 - label_share) * loss(other_label).
  Loss loss(const Batch& batch, Memory& memory, const nn::Context& context) const override;

 protected:
  using Model::Model;
};

// Embedding with positions, blocks without causal mask, final norm, mean over all T positions (padding adds 0), a head
// of one layer, or two with d_head_hidden. With `paired`, one encoder reads two sequences: features [a, b, a * b, a -
// b].
class Classifier : public ClassModel {
 public:
  // Throws UserError unless the options describe this kind of model.
  Classifier(const config::ModelOptions& options, const nn::ParameterSource& source);
  Classifier(const config::ModelOptions& options, std::uint64_t seed, at::TensorOptions tensor_options = at::kFloat)
      : Classifier(options, nn::ParameterSource(seed, tensor_options)) {}

  Batch example(std::int64_t rows, std::uint64_t seed) const override;
  // Batch: "tokens" and, if paired, "second". The mean is always over context_length positions.
  at::Tensor class_logits(const Batch& batch, const nn::Context& context) const override;
  // Returns logits [B, C]. `tokens` and, if paired, `second` are [B, T] int64, T up to context_length. The mean is over
  // T.
  at::Tensor logits(const at::Tensor& tokens, const at::Tensor& second, const nn::Context& context) const;

 private:
  struct Layers;
};

}  // namespace headroom::models
