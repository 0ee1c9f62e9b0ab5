#include "headroom/models/class_model.h"

#include "balance.h"

namespace headroom::models {
namespace {

at::Tensor cross_entropy(const at::Tensor& logits, const Batch& batch) {
  const auto with = [&](const at::Tensor& label, std::int64_t reduction) {
    return at::cross_entropy_loss(logits, label, {}, reduction, /*ignore_index=*/-100, batch.label_smoothing);
  };
  const at::Tensor other = batch.find("other_label");
  if (!other.defined()) {
    return with(batch.at("label"), at::Reduction::Mean);
  }
  const at::Tensor own = with(batch.at("label"), at::Reduction::None);
  return at::lerp(with(other, at::Reduction::None), own, batch.at("label_share").to(own.scalar_type())).mean();
}

}  // namespace

Loss ClassModel::loss(const Batch& batch, Memory& /*memory*/, const nn::Context& context) const {
  BalanceLosses losses;
  nn::Context inner = context;
  inner.losses = &losses;
  const at::Tensor logits = class_logits(batch, inner);
  const at::Tensor wide = logits.scalar_type() == at::kDouble ? logits : logits.to(at::kFloat);
  return with_balance(cross_entropy(wide, batch), std::move(losses), options(), context);
}

}  // namespace headroom::models
