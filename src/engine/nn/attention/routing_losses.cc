#include "routing_losses.h"

#include <cmath>

namespace headroom::nn {
namespace {

// a / sum(a); all 0 where the sum is.
at::Tensor to_sum_one(const at::Tensor& a) {
  const at::Tensor sum = a.sum();
  return a / sum.masked_fill(sum.detach().eq(0.0), 1.0);
}

// [N, E] with the chosen weights in place.
at::Tensor spread(const at::Tensor& index, const at::Tensor& values, std::int64_t n_experts) {
  return at::zeros_symint({index.sym_size(0), n_experts}, values.options()).scatter(-1, index, values);
}

}  // namespace

at::Tensor switch_loss(const at::Tensor& prob, const at::Tensor& counts) {
  const at::Tensor share = to_sum_one(prob.sum(0)), used = to_sum_one(counts.to(prob.scalar_type()));
  return (share * used).sum() * static_cast<double>(prob.sym_size(1).guard_int(__FILE__, __LINE__));
}

at::Tensor slot_counts(const at::Tensor& index, const c10::SymInt& batch, std::int64_t n_experts) {
  const std::int64_t k = index.sym_size(1).guard_int(__FILE__, __LINE__);
  const at::Tensor by_sequence = index.view_symint({batch, -1, k}).transpose(1, 2);  // [B, k, T]
  const at::Tensor seen =
      at::zeros_symint({batch, k, n_experts}, index.options().dtype(at::kDouble)).scatter(2, by_sequence, 1.0);
  return at::constant_pad_nd(seen.sum(at::IntArrayRef{0, 2}), {0, n_experts - k});
}

at::Tensor cv_loss(const at::Tensor& weights) {
  const at::Tensor share = to_sum_one(weights.sum(0));
  if (share.sym_size(0) == 1) {
    return share.sum() * 0.0;  // one expert does not vary
  }
  return share.var() / (share.mean().square() + 1e-10);
}

at::Tensor z_loss(const at::Tensor& score) {
  return score.logsumexp(at::IntArrayRef{-1}).square().mean();
}

at::Tensor entropy_loss(const at::Tensor& score) {
  const at::Tensor rows = at::scalar_tensor(at::Scalar(score.sym_size(0)), score.options().dtype(at::kDouble));
  const at::Tensor log_mean = score.log_softmax(-1).logsumexp(at::IntArrayRef{0}) - rows.log().to(score.scalar_type());
  return (log_mean.exp() * log_mean).sum();
}

at::Tensor choice_counts(const Selection& chosen, const std::optional<at::Tensor>& valid) {
  const at::Tensor index = chosen.index.flatten(1);  // [N, k]
  at::Tensor ones = at::ones_like(index);
  if (valid) {
    ones = ones * valid->unsqueeze(1);
  }
  return spread(index, ones, chosen.score.sym_size(2).guard_int(__FILE__, __LINE__)).sum(0);
}

void add_loss(const Context& context, const std::string& kind, const at::Tensor& value) {
  at::Tensor& sum = (*context.losses)[kind];
  sum = sum.defined() ? sum + value : value;
}

void add_routing_losses(const Selection& chosen, const std::optional<at::Tensor>& valid, const c10::SymInt& batch,
                        const config::AttentionOptions& options, const Context& context) {
  const std::int64_t n = options.n_experts;
  const at::Tensor score = chosen.score.squeeze(1), index = chosen.index.squeeze(1);
  at::Tensor prob = score.softmax(-1);
  if (valid) {
    prob = prob.masked_fill(valid->logical_not().unsqueeze(1), 0.0);
  }
  prob = context.observe("select.prob", prob);
  const at::Tensor counts = context.observe("select.count", choice_counts(chosen, valid));
  if (options.switch_coefficient > 0.0) {
    add_loss(context, "switch", switch_loss(prob, counts));
  }
  if (options.switch_slots_coefficient > 0.0) {
    add_loss(context, "switch_slots", switch_loss(prob, slot_counts(index, batch, n)));
  }
  if (options.cv_coefficient > 0.0) {
    add_loss(context, "cv", cv_loss(spread(index, chosen.weight.squeeze(1), n)));
  }
  if (options.z_coefficient > 0.0) {
    add_loss(context, "z", z_loss(score));
  }
  if (options.entropy_coefficient > 0.0) {
    add_loss(context, "routing_entropy", entropy_loss(score));
  }
}

}  // namespace headroom::nn
