// The loss of models that put examples into classes.
#pragma once

#include "balance.h"
#include "headroom/models/model.h"

namespace headroom::models {

// Cross-entropy of logits(context) [B, C] with the batch's right classes "label" [B] int64, smoothed as the batch asks
// for, and the balance losses on the way.
template <class Logits>
Loss class_loss(const config::ModelOptions& options, const Batch& batch, const nn::Context& context,
                const Logits& logits) {
  BalanceLosses losses;
  nn::Context inner = context;
  inner.losses = &losses;
  const at::Tensor scores = logits(inner);
  const at::Tensor wide = scores.scalar_type() == at::kDouble ? scores : scores.to(at::kFloat);
  return with_balance(at::cross_entropy_loss(wide, batch.at("label"), {}, at::Reduction::Mean, /*ignore_index=*/-100,
                                             batch.label_smoothing),
                      std::move(losses), options, context);
}

}  // namespace headroom::models
