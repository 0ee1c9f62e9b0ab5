// A Transformer encoder that puts a sequence, or a pair of them, into one of several classes (the Long Range Arena
// models of Transformer-MGK).
//
// Shapes: B batch, T tokens, C classes.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>

#include "headroom/config/model_options.h"
#include "headroom/nn/context.h"
#include "headroom/nn/parameters.h"

namespace headroom::models {

struct ClassifierOptions {
  std::int64_t n_classes = 2;
  std::int64_t d_hidden = 128;     // of the head
  bool pair = false;               // two sequences through one encoder: features [a, b, a * b, a - b]
  std::int64_t padding_token = 0;  // invisible as a key, left out of the mean
  config::Activation activation = config::Activation::relu;
};

// Embedding and learned positions, blocks without causal mask, final norm, mean over all T positions (padding adds 0),
// a head of two layers. The options' vocabulary_size, context_length, layers, attention, mlp and norms count.
class Classifier {
 public:
  // `seed` fixes every parameter. Throws MisuseError for options that only language models have.
  Classifier(const config::ModelOptions& options, const ClassifierOptions& head, std::uint64_t seed,
             at::TensorOptions tensor_options = at::kFloat);
  ~Classifier();
  Classifier(Classifier&&) noexcept;

  nn::Parameters& parameters();
  // `tokens`, and `second` with pairs, [B, T] int64 with T up to context_length; logits [B, C].
  at::Tensor logits(const at::Tensor& tokens, const at::Tensor& second, const nn::Context& context) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace headroom::models
