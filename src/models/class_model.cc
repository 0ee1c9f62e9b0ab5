#include "headroom/models/class_model.h"

#include "balance.h"

namespace headroom::models {

Loss ClassModel::loss(const Batch& batch, Memory& /*memory*/, const nn::Context& context) const {
  BalanceLosses losses;
  nn::Context inner = context;
  inner.losses = &losses;
  const at::Tensor logits = class_logits(batch, inner);
  const at::Tensor wide = logits.scalar_type() == at::kDouble ? logits : logits.to(at::kFloat);
  return with_balance(at::cross_entropy_loss(wide, batch.at("label"), {}, at::Reduction::Mean, /*ignore_index=*/-100,
                                             batch.label_smoothing),
                      std::move(losses), options(), context);
}

}  // namespace headroom::models
