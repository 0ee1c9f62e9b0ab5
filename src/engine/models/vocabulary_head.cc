#include "vocabulary_head.h"

#include <algorithm>
#include <cmath>

#include "engine/nn/linear.h"
#include "headroom/core/error.h"
#include "headroom/ops/linear_cross_entropy.h"

namespace headroom::models {

VocabularyHead::VocabularyHead(const config::ModelOptions& o, const at::Tensor& embedding, const nn::Builder& build)
    : vocabulary_size_(o.vocabulary_size), cutoffs_(o.adaptive_cutoffs) {
  const nn::Start start = nn::Start::uniform(1.0 / std::sqrt(static_cast<double>(o.d_model)));
  if (o.tied_embeddings) {
    embedding_ = embedding;
    embedding_for_products_ = build.copy_for_products(embedding);
  } else {
    w_ = build.for_products().matrix("w", {o.d_model, o.vocabulary_size}, start,
                                     {.in = o.d_model, .out = o.vocabulary_size});
  }
  if (o.head_bias) {
    b_ = build.bias("b", {o.vocabulary_size}, o.d_model, start);
  }
  if (const auto n = static_cast<std::int64_t>(cutoffs_.size()); n > 0) {
    cluster_w_ = build.matrix("w_cluster", {o.d_model, n}, start, {.in = o.d_model, .out = n});
    if (o.head_bias) {
      cluster_b_ = build.bias("b_cluster", {n}, o.d_model, start);
    }
  }
}

at::Tensor VocabularyHead::matrix() const {
  if (w_.defined()) {
    return w_;
  }
  return embedding_for_products_.sym_numel() > 0 ? embedding_for_products_.t() : embedding_.t();
}

nn::AdaptiveSoftmax VocabularyHead::adaptive() const {
  return {.w = matrix(), .b = b_, .w_cluster = cluster_w_, .b_cluster = cluster_b_, .cutoffs = cutoffs_};
}

at::Tensor VocabularyHead::logits(const at::Tensor& x, const nn::Context& context) const {
  if (cutoffs_.empty()) {
    return nn::linear(x, matrix(), b_, context);
  }
  std::vector<c10::SymInt> shape = x.sym_sizes().vec();
  shape.back() = vocabulary_size_;
  return adaptive().log_probabilities(x.flatten(0, -2), context).view_symint(shape);
}

at::Tensor VocabularyHead::cross_entropy(const at::Tensor& x, const at::Tensor& target, double label_smoothing,
                                         const nn::Context& context) const {
  if (!(label_smoothing >= 0.0 && label_smoothing < 1.0) || (label_smoothing > 0.0 && !cutoffs_.empty())) {
    fail("cross-entropy: label_smoothing must be at least 0 and below 1, and 0 with an adaptive softmax, got {}",
         label_smoothing);
  }
  if (!cutoffs_.empty()) {
    const at::Tensor counted = target.ge(0).nonzero().squeeze(1);
    const at::Tensor losses =
        adaptive().negative_log_likelihood(x.index_select(0, counted), target.index_select(0, counted), context);
    if (context.token_losses != nullptr) {
      *context.token_losses = losses.detach();
    }
    return losses.mean();
  }
  std::optional<at::Tensor> b;
  if (b_.defined()) {
    b = nn::to_compute(b_, context);
  }
  if (context.token_losses != nullptr) {
    *context.token_losses = ops::token_cross_entropy(nn::to_compute(x, context), nn::to_compute(matrix(), context), b,
                                                     target, context.implementation);
    const at::Tensor mean = context.token_losses->mean();
    return context.token_losses->numel() > 0 ? mean : at::zeros_like(mean);
  }
  const at::Tensor sharp = ops::linear_cross_entropy(nn::to_compute(x, context), nn::to_compute(matrix(), context), b,
                                                     target, context.implementation);
  return label_smoothing > 0.0 ? sharp + smoothing(x, target) * label_smoothing : sharp;
}

// The right token's score above the mean of all scores: what a smoothed loss has more, without the N x V scores.
at::Tensor VocabularyHead::smoothing(const at::Tensor& x, const at::Tensor& target) const {
  const at::Tensor counted = target.ge(0).nonzero().squeeze(1), right = target.index_select(0, counted);
  const at::Tensor by_token = matrix().t();  // [V, d]
  const at::Tensor rows = x.index_select(0, counted).to(by_token.scalar_type());
  at::Tensor above = (rows * (at::embedding(by_token, right) - by_token.mean(0))).sum(1);
  if (b_.defined()) {
    above = above + b_.index_select(0, right) - b_.mean();
  }
  return above.sum() / static_cast<double>(std::max<std::int64_t>(1, right.size(0)));
}

}  // namespace headroom::models
