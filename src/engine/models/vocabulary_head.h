// The output layer of the models that write tokens: a score for each of the vocabulary, and the loss of the right one.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "engine/nn/adaptive_softmax.h"
#include "headroom/config/model_options.h"
#include "headroom/nn/context.h"
#include "headroom/nn/parameters.h"

namespace headroom::models {

// Letters: N rows, d d_model, V vocabulary.
class VocabularyHead {
 public:
  // Parameters "w" [d, V], unless it is tied to `embedding` [V, d], and "b" [V] with head_bias; for n classes of an
  // adaptive softmax "w_cluster" [d, n] and "b_cluster" [n].
  VocabularyHead(const config::ModelOptions& options, const at::Tensor& embedding, const nn::Builder& build);

  // Scores of every token, up to a constant: [..., V] of x [..., d].
  at::Tensor logits(const at::Tensor& x, const nn::Context& context) const;

  // Mean over targets of at least 0 in nats, a scalar; `x` [N, d], `target` [N] int64. With label smoothing s the right
  // token counts 1 - s, and s is spread evenly over all V; it must be in [0, 1), and 0 with an adaptive softmax: throws
  // Error otherwise.
  at::Tensor cross_entropy(const at::Tensor& x, const at::Tensor& target, double label_smoothing,
                           const nn::Context& context) const;

 private:
  at::Tensor matrix() const;  // [d, V]
  nn::AdaptiveSoftmax adaptive() const;
  at::Tensor smoothing(const at::Tensor& x, const at::Tensor& target) const;

  std::int64_t vocabulary_size_;
  std::vector<std::int64_t> cutoffs_;
  at::Tensor embedding_, embedding_for_products_;  // tied
  at::Tensor w_, b_;
  at::Tensor cluster_w_, cluster_b_;
};

}  // namespace headroom::models
