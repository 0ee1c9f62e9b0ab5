// Tokens to vectors, with the position schemes that are added to them.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>

#include "engine/nn/linear.h"
#include "headroom/config/model_options.h"
#include "headroom/nn/context.h"
#include "headroom/nn/parameters.h"

namespace headroom::models {

// norm(scale * embed[token] + position), then dropout. Only masked language models have the norm, and only
// encoder-decoders a scale other than 1: sqrt(d), so that vectors that serve as output layer too are no smaller than
// the positions (Vaswani et al., section 3.4).
class Embedding {
 public:
  // Parameters "embed" [V, d], with learned positions "position" [context_length, d], and "norm_embed.*".
  Embedding(const config::ModelOptions& options, const nn::Builder& build);
  // With the vectors of another one, `matrix` [V, d], and positions of its own.
  Embedding(const config::ModelOptions& options, at::Tensor matrix, const nn::Builder& build);
  // "embed" [V, d], or [n, d] of a vocabulary of n tokens.
  static at::Tensor make_matrix(const config::ModelOptions& options, const nn::Builder& build) {
    return make_matrix(options, options.vocabulary_size, build);
  }
  static at::Tensor make_matrix(const config::ModelOptions& options, std::int64_t vocabulary_size,
                                const nn::Builder& build);

  // [B, n] tokens to [B, n, d]; the first is token `first` of its chunk. Throws Error beyond context_length.
  at::Tensor operator()(const at::Tensor& tokens, std::int64_t first, const nn::Context& context) const {
    return (*this)(tokens, at::IntArrayRef(first), context);
  }
  // The same with a first place for each row, or one for all.
  at::Tensor operator()(const at::Tensor& tokens, at::IntArrayRef first, const nn::Context& context) const;
  const at::Tensor& matrix() const { return embed_; }

 private:
  double scale_, dropout_;
  std::int64_t context_length_;
  at::Tensor embed_, position_;  // positions: learned, or sinusoids, or none
  std::optional<nn::NormLayer> norm_;
};

}  // namespace headroom::models
