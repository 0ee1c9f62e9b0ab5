#include "mixture_scores.h"

#include <limits>

namespace headroom::ops {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kMaxExponent = 60.0;  // a component without weight may lie far above the others

at::Tensor at_least_float(const at::Tensor& t) {
  return t.scalar_type() == at::kDouble ? t : t.to(at::kFloat);
}

at::Tensor squared_length(const at::Tensor& t) {
  return at_least_float(t).square().sum(-1);
}

// s_r for every pair, [B, H, T, S].
at::Tensor component_score(const AttentionInputs& in, const at::Tensor& key, std::int64_t r) {
  const Mixture& mixture = *in.mixture;
  const at::Tensor k = for_every_head(key, in.q.sym_size(1));
  const at::Tensor product = at_least_float(in.q.matmul(k.transpose(2, 3)));
  if (!mixture.coefficient) {
    return product * in.scale;
  }
  const at::Tensor distance = squared_length(in.q).unsqueeze(3) - product * 2.0 + squared_length(k).unsqueeze(2);
  return distance * -at_least_float(mixture.coefficient->select(0, r));
}

// log sum_r prior_r exp(s_r); -inf where no component has weight.
at::Tensor log_weight(const std::vector<at::Tensor>& scores, const std::optional<at::Tensor>& prior) {
  const at::Tensor s = at::stack(scores);  // [R, B, H, T, S]
  if (!prior) {
    return s.logsumexp(at::IntArrayRef{0});
  }
  const at::Tensor weightless = prior->detach().le(0.0);
  at::Tensor top = std::get<0>(s.detach().masked_fill(weightless, -kInfinity).max(0));
  top = top.masked_fill(top.isinf(), 0.0);
  const at::Tensor sum = (*prior * (s - top).clamp_max(kMaxExponent).exp()).sum(0);
  const at::Tensor none = sum.detach().le(0.0);
  return (sum.masked_fill(none, 1.0).log() + top).masked_fill(none, -kInfinity);
}

}  // namespace

std::int64_t Mixture::n_components() const {
  return shift ? shift->sym_size(0).guard_int(__FILE__, __LINE__) : static_cast<std::int64_t>(more_keys.size()) + 1;
}

at::Tensor for_every_head(const at::Tensor& grouped, const c10::SymInt& n_heads) {
  const c10::SymInt groups = grouped.sym_size(1);
  return groups == n_heads ? grouped : grouped.repeat_interleave_symint(n_heads / groups, 1);
}

at::Tensor mixture_scores(const AttentionInputs& in, const Visit& visit) {
  const Mixture& mixture = *in.mixture;
  std::vector<at::Tensor> scores;
  for (std::int64_t r = 0; r < mixture.n_components(); ++r) {
    const at::Tensor key = mixture.shift ? in.k - mixture.shift->select(0, r).to(in.k.scalar_type())
                           : r == 0      ? in.k
                                         : mixture.more_keys[static_cast<std::size_t>(r - 1)];
    const at::Tensor score = component_score(in, key, r);
    scores.push_back(visit ? visit(AttentionStage::component, score) : score);
  }
  if (mixture.maximum) {
    return at::stack(scores).amax(0);
  }
  if (scores.size() == 1 && !mixture.prior) {
    return scores[0];
  }
  std::optional<at::Tensor> prior;
  if (mixture.prior) {  // [R, G, S or 1] to [R, 1, H, 1, S or 1]
    prior = at_least_float(for_every_head(*mixture.prior, in.q.sym_size(1))).unsqueeze(2).unsqueeze(1);
  }
  return log_weight(scores, prior);
}

}  // namespace headroom::ops
