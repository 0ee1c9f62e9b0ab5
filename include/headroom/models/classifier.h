// Classification models: the Transformer encoder that classifies sequences or pairs of sequences (the Long Range Arena
// models of Transformer-MGK), and the one that classifies images.
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

// A Transformer encoder that classifies images (ViT and DCViT of the DCMHA paper).
//
// Shapes: B batch, C image_channels, P patch_size, N = (image_size / P)^2 patches, d d_model.
// Patches in row-major order, times "patch.w" [C P P, d] plus "patch.b"; positions: fixed sines and cosines of row and
// column with position = "sinusoidal", a table "position" [N, d] with "learned"; blocks without causal mask, final
// norm, mean over patches; with d_head_hidden also tanh(x W + b); a head initialised to 0.
class VisionTransformer : public ClassModel {
 public:
  // Throws UserError unless the options describe this kind of model, for a patch_size that does not divide image_size,
  // and for fixed positions if d_model is not a multiple of 4.
  VisionTransformer(const config::ModelOptions& options, const nn::ParameterSource& source);
  VisionTransformer(const config::ModelOptions& options, std::uint64_t seed,
                    at::TensorOptions tensor_options = at::kFloat)
      : VisionTransformer(options, nn::ParameterSource(seed, tensor_options)) {}

  Batch example(std::int64_t rows, std::uint64_t seed) const override;
  // Batch: "images".
  at::Tensor class_logits(const Batch& batch, const nn::Context& context) const override;
  // Returns logits [B, n_classes] for `images` [B, C, image_size, image_size]. Throws Error for other shapes.
  at::Tensor logits(const at::Tensor& images, const nn::Context& context) const;

 private:
  struct Layers;
};

// Returns the positions of a `side` x `side` grid in row-major order, [side^2, d]: the quarters sin(x w), cos(x w),
// sin(y w), cos(y w) of column x and row y, with d / 4 logarithmically spaced frequencies w from 1 to 1 / base.
at::Tensor grid_sinusoids(std::int64_t side, std::int64_t d_model, double base, at::TensorOptions options);

}  // namespace headroom::models
