#include "prior.h"

#include <ATen/core/grad_mode.h>

#include "headroom/core/error.h"

namespace headroom::nn {
namespace {

// A component that the others have displaced loses its responsibility by factors; below this it has none. The backward
// pass divides by sums as small as a prior, which a subnormal number's inverse would make infinite.
constexpr double kLeastPrior = 1e-30;

}  // namespace

MixturePrior::MixturePrior(const config::AttentionOptions& o, std::int64_t n_positions, const Builder& build)
    : kind_(o.has_prior() ? o.prior : config::Prior::none),
      update_(o.prior_update),
      pairs_(o.soft_e_pairs),
      clamp_(o.prior_clamp && o.prior_update == config::PriorUpdate::gradient),
      n_components_(o.key_components()),
      n_heads_(o.computed_kv_heads()) {
  if (kind_ == config::Prior::none) {
    return;
  }
  std::vector<std::int64_t> shape = {updates() ? n_components_ - 1 : n_components_};
  if (kind_ != config::Prior::layer) {
    shape.push_back(n_heads_);
  }
  if (kind_ == config::Prior::head_position) {
    shape.push_back(n_positions);
  }
  const double start = 1.0 / static_cast<double>(n_components_);
  switch (update_) {
    case config::PriorUpdate::gradient:
      table_ = build.constant("prior", shape, start);
      break;
    case config::PriorUpdate::soft_e:
      table_ = build.buffer("prior", shape, start);
      break;
    case config::PriorUpdate::none:
      table_ = at::full(shape, start, build.options());
      break;
  }
}

at::Tensor MixturePrior::broadcast(const at::Tensor& table) const {
  switch (kind_) {
    case config::Prior::layer:
      return table.view({-1, 1, 1}).expand({-1, n_heads_, 1});
    case config::Prior::head:
      return table.unsqueeze(2);
    default:
      return table;
  }
}

std::optional<at::Tensor> MixturePrior::weights(std::int64_t first_index, const c10::SymInt& n_keys) const {
  if (kind_ == config::Prior::none) {
    return std::nullopt;
  }
  at::Tensor table = table_;
  if (updates()) {
    table = at::cat({table, 1.0 - table.sum(0, /*keepdim=*/true)});
    table = table.masked_fill(table.lt(kLeastPrior), 0.0);
  } else if (clamp_) {
    table = table.clamp(0.0, 1.0);
  }
  at::Tensor all = broadcast(table);
  if (kind_ == config::Prior::head_position) {
    if (n_keys + first_index > all.size(2)) {
      fail("mixture prior: keys {} to {} are beyond the {} positions that it knows", first_index,
           c10::str(n_keys + first_index - 1), all.size(2));
    }
    all = all.narrow_symint(2, first_index, n_keys);
  }
  return all;
}

void MixturePrior::measure(const std::vector<at::Tensor>& components, const std::optional<at::Tensor>& valid_keys,
                           const std::optional<at::Tensor>& valid_queries, const Context& context) const {
  const at::NoGradGuard no_grad;
  const at::Tensor s = at::stack(components);  // [R, B, H, T, S]
  const std::int64_t b = s.size(1), h = s.size(2), t = s.size(3), n = s.size(4), r = n_components_;
  const at::Tensor prior =
      weights(0, n)->repeat_interleave(h / n_heads_, 1).unsqueeze(2).unsqueeze(1).to(s.scalar_type());
  const at::Tensor top = std::get<0>(s.max(0));
  const at::Tensor mass = prior * (s - top).exp();
  // kResponsibilityEpsilon is added to the sum of unshifted weights.
  at::Tensor share = mass / (mass.sum(0) + (-top).exp() * kResponsibilityEpsilon);
  share = share.nan_to_num(0.0).narrow(0, 0, r - 1).view({r - 1, b, n_heads_, -1, t, n}).mean(3);  // [R-1, B, G, T, S]

  const bool valid_only = pairs_ == config::SoftEPairs::valid;
  at::Tensor pairs = at::ones({b, t, n}, share.options());
  if (valid_only && valid_keys) {
    pairs = pairs * valid_keys->unsqueeze(1);
  }
  if (valid_only && (valid_queries || valid_keys)) {
    pairs = pairs * (valid_queries ? *valid_queries : valid_keys->narrow(1, n - t, t)).unsqueeze(2);
  }
  const at::Tensor weighted = (share * pairs.unsqueeze(1)).sum(at::IntArrayRef{1, 3});  // [R-1, G, S]
  const at::Tensor count = pairs.sum(at::IntArrayRef{0, 1});                            // [S]
  BufferUpdate update{.buffer = table_, .epsilon = valid_only ? kResponsibilityEpsilon : 0.0};
  if (kind_ == config::Prior::head_position) {
    const std::int64_t unseen = table_.size(2) - n;
    update.sum = at::constant_pad_nd(weighted, {0, unseen});
    update.count = at::constant_pad_nd(count, {0, unseen});
  } else if (kind_ == config::Prior::head) {
    update.sum = weighted.sum(2);
    update.count = count.sum();
  } else {
    update.sum = weighted.sum(at::IntArrayRef{1, 2});
    update.count = count.sum() * static_cast<double>(n_heads_);
  }
  report(*context.updates, context.scope + "prior", update);
}

}  // namespace headroom::nn
