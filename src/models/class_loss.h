// The loss of models that put examples into classes.
#pragma once

#include "balance.h"

namespace headroom::models {

// Cross-entropy of logits(context) [B, C] with the right classes `label` [B] int64, and the balance losses on the way.
template <class Logits>
Loss class_loss(const config::ModelOptions& options, const at::Tensor& label, const nn::Context& context,
                const Logits& logits) {
  BalanceLosses losses;
  nn::Context inner = context;
  inner.losses = &losses;
  const at::Tensor scores = logits(inner);
  const at::Tensor wide = scores.scalar_type() == at::kDouble ? scores : scores.to(at::kFloat);
  return with_balance(at::cross_entropy_loss(wide, label), std::move(losses), options, context);
}

}  // namespace headroom::models
