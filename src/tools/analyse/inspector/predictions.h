// Predictions of a language model at each position, and direct logit attribution: if its scale is held constant, the
// final norm is linear, so that a logit is a sum over all contributions to the residual stream.
#pragma once

#include <ATen/ATen.h>

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "attribution.h"
#include "headroom/models/language_model.h"
#include "headroom/nn/observer.h"

namespace headroom::inspector {

// Chains two observers of one pass: the second receives the values that the first returns. `first` may be null.
class ObserverChain : public nn::Observer {
 public:
  ObserverChain(nn::Observer* first, nn::Observer& second) : first_(first), second_(second) {}
  bool wants(std::string_view name) const override {
    return (first_ != nullptr && first_->wants(name)) || second_.wants(name);
  }
  at::Tensor observe(std::string_view name, at::Tensor value) override {
    if (first_ != nullptr && first_->wants(name)) {
      value = first_->observe(name, std::move(value));
    }
    return second_.wants(name) ? second_.observe(name, std::move(value)) : value;
  }

 private:
  nn::Observer* first_;
  nn::Observer& second_;
};

// Shapes: T positions, d d_model, V vocabulary, k most likely tokens.
struct Predictions {
  at::Tensor likeliest, probability;       // [T, k], in descending order of probability
  at::Tensor next_probability, next_rank;  // [T] of the next token, rank 0 is the most likely; 0 for the last position
  at::Tensor entropy;                      // [T] in nats

  // The attributed logits: of the next token (for the last position, the most likely one) and of the most likely token.
  static constexpr std::int64_t kTargets = 2;
  std::array<at::Tensor, kTargets> target;  // [T]
  // Whether logits are linear in the residual stream (norms before layers, a single output matrix). If so, logit =
  // stream . direction + constant.
  bool linear = false;
  std::array<at::Tensor, kTargets> logit;      // [T]
  std::array<at::Tensor, kTargets> direction;  // [T, d]
  std::array<at::Tensor, kTargets> constant;   // [T]
};

Predictions predict(const models::LanguageModel& model, const at::Tensor& ids, const nn::Context& context,
                    std::int64_t n_likeliest);

// How context.observer changes the predictions.
struct PredictionChanges {
  at::Tensor divergence;     // [T] KL(without observer || with observer) in nats
  at::Tensor token;          // [T, k] tokens whose probabilities change most, in descending order
  at::Tensor before, after;  // [T, k] their probabilities without and with the observer
};
PredictionChanges changes_of_predictions(const models::LanguageModel& model, const at::Tensor& ids,
                                         const nn::Context& context, std::int64_t k);

// The contribution of an attention layer to the logits of one target.
struct DirectLogits {
  at::Tensor heads;           // [T, H]
  at::Tensor bias;            // [T]
  at::Tensor value_experts;   // [T, H, E]; E = 0 without experts
  at::Tensor output_experts;  // [T, H, E]; E = 0 without experts
};
// Returns one DirectLogits for each of `directions` [T, d].
std::vector<DirectLogits> direct_logits(const Attribution& a, const std::vector<at::Tensor>& directions,
                                        std::int64_t n_experts);

}  // namespace headroom::inspector
