// A Transformer encoder that classifies images (ViT and DCViT of the DCMHA paper).
//
// Shapes: B batch, C image_channels, P patch_size, N = (image_size / P)^2 patches, d d_model.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

#include "headroom/models/classifier.h"

namespace headroom::models {

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
