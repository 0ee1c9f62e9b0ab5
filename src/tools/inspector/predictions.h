// What a language model expects at each place, and where the logit of a token comes from: the final norm, at the scale
// that it really has, is linear, so that a logit is a sum over all that was added to the residual stream.
#pragma once

#include <ATen/ATen.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "attribution.h"
#include "headroom/models/language_model.h"

namespace headroom::inspect {

// Letters: T places, d d_model, L layers, V vocabulary, k likeliest tokens.
struct Predictions {
  at::Tensor likeliest, probability;       // [T, k], in decreasing order
  at::Tensor next_probability, next_rank;  // [T], of the token that comes next, the likeliest has rank 0; the last: 0
  at::Tensor entropy;                      // [T] in nats

  // Whose logit is explained: the next token (of the last place the likeliest), and the likeliest.
  static constexpr std::int64_t kTargets = 2;
  std::array<at::Tensor, kTargets> target;  // [T]
  // Where logits are sums (norms before layers, one matrix of the vocabulary): how they follow from what a place's
  // residual stream holds, logit = stream . direction + constant.
  bool sums = false;
  std::array<at::Tensor, kTargets> logit;      // [T]
  std::array<at::Tensor, kTargets> direction;  // [T, d]
  std::array<at::Tensor, kTargets> constant;   // [T]
};

Predictions predict(const models::LanguageModel& model, const at::Tensor& ids, const nn::Context& context,
                    std::int64_t n_likeliest);

// How the predictions of a pass, as context.observer leaves it, differ from those of one without an observer.
struct PredictionChanges {
  at::Tensor divergence;     // [T] Kullback-Leibler, in nats: of the changed ones from those without
  at::Tensor token;          // [T, k] whose probability changes most, the most first
  at::Tensor before, after;  // [T, k]
};
PredictionChanges changes_of_predictions(const models::LanguageModel& model, const at::Tensor& ids,
                                         const nn::Context& context, std::int64_t k);

// What a layer adds to the logits of one target.
struct DirectLogits {
  at::Tensor heads;           // [T, H] by attention matrix
  at::Tensor bias;            // [T] the layer's output bias
  at::Tensor value_experts;   // [T, H, E] by the expert that made the value; without experts E = 0
  at::Tensor output_experts;  // [T, H, E] by the expert that its result went through
};
std::vector<DirectLogits> direct_logits(const Attribution& a, const std::vector<at::Tensor>& directions,
                                        std::int64_t n_experts);

}  // namespace headroom::inspect
