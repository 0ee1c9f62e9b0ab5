#include "vocabulary_layers.h"

#include <algorithm>
#include <cmath>

#include "foundation/core/transformed.h"
#include "headroom/config/attention_part.h"
#include "headroom/config/part_options.h"
#include "headroom/core/error.h"
#include "headroom/nn/attention_parts.h"
#include "headroom/ops/linear.h"

namespace headroom::models {
namespace {

at::Tensor wide_log_softmax(const at::Tensor& logits) {
  return (logits.scalar_type() == at::kDouble ? logits : logits.to(at::kFloat)).log_softmax(-1);
}

}  // namespace

std::int64_t AdaptiveSoftmax::entry(std::int64_t i) const {
  const auto n = static_cast<std::int64_t>(cutoffs.size());
  return cutoffs[0] + (reversed ? n - i : i - 1);
}

at::Tensor AdaptiveSoftmax::band(const at::Tensor& x, std::int64_t begin, std::int64_t end,
                                 const nn::Context& context) const {
  const at::Tensor bias = b.defined() ? b.narrow(0, begin, end - begin) : b;
  return wide_log_softmax(nn::linear(x, w.narrow(1, begin, end - begin), bias, context));
}

at::Tensor AdaptiveSoftmax::head(const at::Tensor& x, const nn::Context& context) const {
  const at::Tensor matrix = at::cat({w.narrow(1, 0, cutoffs[0]), w_cluster}, 1);
  const at::Tensor bias = b.defined() ? at::cat({b.narrow(0, 0, cutoffs[0]), b_cluster}) : b;
  return wide_log_softmax(nn::linear(x, matrix, bias, context));
}

at::Tensor AdaptiveSoftmax::negative_log_likelihood(const at::Tensor& x, const at::Tensor& target,
                                                    const nn::Context& context) const {
  const auto n = static_cast<std::int64_t>(cutoffs.size());
  const at::Tensor first = head(x, context);
  at::Tensor column = target.clone();  // column of the target in the head
  std::vector<at::Tensor> rows, values;
  for (std::int64_t i = 1; i <= n; ++i) {
    const std::int64_t begin = cutoffs[static_cast<std::size_t>(i - 1)];
    const std::int64_t end = i < n ? cutoffs[static_cast<std::size_t>(i)] : w.size(1);
    const at::Tensor in_band = target.ge(begin).logical_and(target.lt(end)).nonzero().squeeze(1);
    column.index_fill_(0, in_band, entry(i));
    if (in_band.size(0) > 0) {
      const at::Tensor within = target.index_select(0, in_band) - begin;
      rows.push_back(in_band);
      values.push_back(band(x.index_select(0, in_band), begin, end, context).gather(1, within.unsqueeze(1)).squeeze(1));
    }
  }
  at::Tensor log_p = first.gather(1, column.unsqueeze(1)).squeeze(1);
  if (!rows.empty()) {
    log_p = log_p.index_add(0, at::cat(rows), at::cat(values));
  }
  return -log_p;
}

at::Tensor AdaptiveSoftmax::log_probabilities(const at::Tensor& x, const nn::Context& context) const {
  const auto n = static_cast<std::int64_t>(cutoffs.size());
  const at::Tensor first = head(x, context);
  std::vector<at::Tensor> parts = {first.narrow(1, 0, cutoffs[0])};
  for (std::int64_t i = 1; i <= n; ++i) {
    const std::int64_t begin = cutoffs[static_cast<std::size_t>(i - 1)];
    const std::int64_t end = i < n ? cutoffs[static_cast<std::size_t>(i)] : w.size(1);
    parts.push_back(band(x, begin, end, context) + first.narrow(1, entry(i), 1));
  }
  return at::cat(parts, 1);
}

namespace {

double deviation(const config::ModelOptions& o) {
  return 1.0 / std::sqrt(static_cast<double>(o.d_model));
}

}  // namespace

at::Tensor Embedding::make_matrix(const config::ModelOptions& o, std::int64_t vocabulary_size,
                                  const nn::Builder& build) {
  return build.embedding("embed", {vocabulary_size, o.d_model}, nn::Distribution::normal(deviation(o)));
}

Embedding::Embedding(const config::ModelOptions& o, const nn::Builder& build)
    : Embedding(o, make_matrix(o, build), build) {}

Embedding::Embedding(const config::ModelOptions& o, at::Tensor matrix, const nn::Builder& build)
    : scale_(o.scales_embeddings() ? std::sqrt(static_cast<double>(o.d_model)) : 1.0),
      dropout_(o.dropout),
      context_length_(o.context_length),
      embed_(std::move(matrix)) {
  if (o.attention.position->added_vectors() == config::AddedVectors::learned) {
    position_ = build.embedding("position", {o.context_length, o.d_model}, nn::Distribution::normal(deviation(o)));
  } else if (o.attention.position->added_vectors() == config::AddedVectors::fixed) {
    position_ = nn::sinusoids(0, o.context_length, o.d_model, o.attention.of<config::PositionOptions>().rope_base,
                              build.options());
  }
  if (o.kind == config::ModelKind::masked_language_model) {
    norm_.emplace(o.norm, o.norm_epsilon, o.d_model, build.in("norm_embed"));
  }
}

at::Tensor Embedding::operator()(const at::Tensor& tokens, at::IntArrayRef first, const nn::Context& context) const {
  const c10::SymInt n = tokens.sym_size(1);
  const std::int64_t last = *std::ranges::max_element(first);
  if (n + last > context_length_) {
    fail("model: a sequence must have at most context_length={} tokens, got {}", context_length_, c10::str(n + last));
  }
  at::Tensor h = at::embedding(embed_, tokens);
  if (scale_ != 1.0) {
    h = h * scale_;
  }
  if (position_.defined()) {
    std::vector<at::Tensor> rows =
        transformed(first, [&](const std::int64_t place) { return position_.narrow_symint(0, place, n); });
    h = h + (rows.size() == 1 ? rows[0] : at::stack(rows));
  }
  return nn::dropout(norm_ ? (*norm_)(h) : h, dropout_, context, "embed");
}

VocabularyHead::VocabularyHead(const config::ModelOptions& o, const at::Tensor& embedding, const nn::Builder& build)
    : vocabulary_size_(o.vocabulary_size), cutoffs_(o.adaptive_cutoffs) {
  const nn::Distribution uniform = nn::Distribution::uniform(1.0 / std::sqrt(static_cast<double>(o.d_model)));
  if (o.tied_embeddings) {
    embedding_ = embedding;
    cached_embedding_ = build.cached_copy(embedding);
  } else {
    w_ = build.for_matmul().matrix("w", {o.d_model, o.vocabulary_size}, uniform,
                                   {.in = o.d_model, .out = o.vocabulary_size});
  }
  if (o.head_bias) {
    b_ = build.bias("b", {o.vocabulary_size}, o.d_model, uniform);
  }
  if (const auto n = static_cast<std::int64_t>(cutoffs_.size()); n > 0) {
    cluster_w_ = build.matrix("w_cluster", {o.d_model, n}, uniform, {.in = o.d_model, .out = n});
    if (o.head_bias) {
      cluster_b_ = build.bias("b_cluster", {n}, o.d_model, uniform);
    }
  }
}

at::Tensor VocabularyHead::matrix() const {
  if (w_.defined()) {
    return w_;
  }
  return cached_embedding_.sym_numel() > 0 ? cached_embedding_.t() : embedding_.t();
}

AdaptiveSoftmax VocabularyHead::adaptive() const {
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
    return losses.numel() > 0 ? losses.mean() : losses.sum();
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

// Returns the target's logit minus the mean of all logits, without forming the N x V logits. Multiplied by the label
// smoothing, this is the difference between the smoothed loss and the cross-entropy.
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
