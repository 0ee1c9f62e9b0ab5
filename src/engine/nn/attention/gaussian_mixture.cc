#include "gaussian_mixture.h"

#include <ATen/core/grad_mode.h>
#include <cmath>

#include "engine/nn/linear.h"
#include "headroom/core/error.h"

namespace headroom::nn {

KeyShift::KeyShift(const config::AttentionOptions& o, const Builder& build) {
  const auto& mixture = o.of<config::MixtureOptions>();
  if (mixture.keys != config::Keys::shifted) {
    return;
  }
  const std::int64_t shape[] = {mixture.n_mixtures, o.computed_kv_heads(), o.d_head};
  shift_ = build.custom("shift", shape, [&] {
    at::Tensor start = build.draw(shape, Distribution::normal(1.0)).mul_(mixture.shift_std);
    start.select(0, 0).zero_();
    return start;
  });
}

std::optional<at::Tensor> KeyShift::of_keys(const c10::SymInt& n_keys, std::int64_t first_position,
                                            const std::optional<Rotary>& rotary) const {
  if (!shift_.defined()) {
    return std::nullopt;
  }
  const at::Tensor shift = shift_.unsqueeze(2);  // [R, G, 1, e]
  // A rotation is linear, so key and shift can be rotated separately.
  return rotary ? (*rotary)(shift.expand_symint({-1, -1, n_keys, -1}), first_position) : shift;
}

namespace {

// Priors below this value count as 0: the backward pass divides by sums as small as a prior, and the inverse of a
// subnormal number is infinite.
constexpr double kLeastPrior = 1e-30;

}  // namespace

MixturePrior::MixturePrior(const config::AttentionOptions& o, std::int64_t n_positions, const Builder& build)
    : options_(o.of<config::MixtureOptions>()),
      kind_(options_.has_prior() ? options_.prior : config::Prior::none),
      n_heads_(o.computed_kv_heads()) {
  if (kind_ == config::Prior::none) {
    return;
  }
  std::vector<std::int64_t> shape = {updates() ? options_.n_mixtures - 1 : options_.n_mixtures};
  if (kind_ != config::Prior::layer) {
    shape.push_back(n_heads_);
  }
  if (kind_ == config::Prior::head_position) {
    shape.push_back(n_positions);
  }
  const double start = 1.0 / static_cast<double>(options_.n_mixtures);
  switch (options_.prior_update) {
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
  } else if (options_.prior_clamp && options_.prior_update == config::PriorUpdate::gradient) {
    table = table.clamp(0.0, 1.0);
  }
  at::Tensor all = broadcast(table);
  if (kind_ == config::Prior::head_position) {
    if (n_keys + first_index > all.size(2)) {
      fail("mixture prior: keys {} to {} exceed its {} positions", first_index, c10::str(n_keys + first_index - 1),
           all.size(2));
    }
    all = all.narrow_symint(2, first_index, n_keys);
  }
  return all;
}

void MixturePrior::measure(const std::vector<at::Tensor>& components, const std::optional<at::Tensor>& valid_keys,
                           const std::optional<at::Tensor>& valid_queries, const Context& context) const {
  const at::NoGradGuard no_grad;
  const at::Tensor s = at::stack(components);  // [R, B, H, T, S]
  const std::int64_t b = s.size(1), h = s.size(2), t = s.size(3), n = s.size(4), r = options_.n_mixtures;
  const at::Tensor prior =
      weights(0, n)->repeat_interleave(h / n_heads_, 1).unsqueeze(2).unsqueeze(1).to(s.scalar_type());
  const at::Tensor top = std::get<0>(s.max(0));
  const at::Tensor mass = prior * (s - top).exp();
  // kResponsibilityEpsilon applies to the sum of weights before the shift by `top`.
  at::Tensor share = mass / (mass.sum(0) + (-top).exp() * kResponsibilityEpsilon);
  share = share.nan_to_num(0.0).narrow(0, 0, r - 1).view({r - 1, b, n_heads_, -1, t, n}).mean(3);  // [R-1, B, G, T, S]

  const bool valid_only = options_.soft_e_pairs == config::SoftEPairs::valid;
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

namespace {

// Mixtures of keys scored by Gaussians of their distance or by dot products (Transformer-MGK Eq. 7-13).

class GaussianMixture : public Score {
 public:
  GaussianMixture(const config::AttentionOptions& o, const ScorePlace& place, const Builder& build)
      : mixture_(o.of<config::MixtureOptions>()),
        fixed_(1.0 / std::sqrt(static_cast<double>(o.d_head))),
        dropout_(o.dropout),
        shift_(o, build),
        prior_(o, place.n_positions, build),
        rotary_(place.rotary),
        learned_(make_scale(o, build)) {
    std::vector<double> multiple = mixture_.mixture_coefficients;
    if (multiple.empty()) {
      multiple.assign(static_cast<std::size_t>(mixture_.components()), 0.5);
    }
    std::vector<at::Tensor> each;  // traceable, unlike from_blob
    for (const double value : multiple) {
      each.push_back(at::full({}, value, build.options()));
    }
    multiple_ = at::stack(each);
  }

  at::Tensor operator()(ops::AttentionInputs in, const ScoreCall& call, const Context& context) const override {
    ops::Mixture mixture;
    mixture.more_keys = call.more_keys;
    mixture.shift = shift_.of_keys(in.k.sym_size(2), call.first_position, rotary_);
    mixture.prior = prior_.weights(call.first_index, in.k.sym_size(2));
    mixture.maximum = mixture_.mixing == config::Mixing::max;
    mixture.epsilon = mixture_.mixture_epsilon;
    if (mixture_.mixture_score == config::MixtureScore::gaussian) {
      mixture.coefficient = learned_.defined() ? multiple_ * learned_ : multiple_ * fixed_;
      in.scale = fixed_;  // scales the relative position term
      if (learned_.defined() && in.q_position) {
        in.q_position = *in.q_position * to_compute(learned_, context);
        in.scale = 1.0;
      }
    } else {
      apply_scale(in, learned_, fixed_, context);
    }
    const std::optional<at::Tensor> prior = mixture.prior;
    in.mixture = std::move(mixture);
    const bool measures = prior_.updates() && context.training && context.updates != nullptr;
    if (!measures && !context.wants("responsibilities")) {
      return run_attention(in, dropout_, context);
    }
    // Only the reference returns the components of every pair.
    std::vector<at::Tensor> components;
    const at::Tensor o = run_attention(in, dropout_, context, [&](ops::AttentionStage stage, const at::Tensor& value) {
      if (stage == ops::AttentionStage::component) {
        components.push_back(value);
      }
      return value;
    });
    context.show("responsibilities", [&] { return responsibilities(components, prior); });
    if (measures) {
      prior_.measure(components, in.mask.valid_keys, call.valid_queries, context);
    }
    return o;
  }

 private:
  // Returns each component's share of a pair's weight, [B, R, H, T, S]; with max mixing, the largest component's is 1.
  at::Tensor responsibilities(const std::vector<at::Tensor>& components, const std::optional<at::Tensor>& prior) const {
    const at::Tensor s = at::stack(components, 1);
    if (mixture_.mixing == config::Mixing::max) {
      return at::zeros_like(s).scatter(1, s.argmax(1, /*keepdim=*/true), 1.0);
    }
    at::Tensor mass = s;
    if (prior) {
      const at::Tensor by_head = prior->repeat_interleave(s.size(2) / prior->size(1), 1);  // [R, H, S or 1]
      mass = mass + by_head.log().unsqueeze(2).unsqueeze(0);
    }
    return mass.softmax(1).nan_to_num(0.0);
  }

  config::MixtureOptions mixture_;
  double fixed_, dropout_;
  KeyShift shift_;
  MixturePrior prior_;
  std::optional<Rotary> rotary_;
  at::Tensor learned_;
  at::Tensor multiple_;  // [R], c_r = multiple_r * scale
};

const Factory<MakeScore> kGaussianMixture("gaussian_mixture", make_part<Score, GaussianMixture>);

}  // namespace
}  // namespace headroom::nn
