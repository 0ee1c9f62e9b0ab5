// Keys that are mixtures: several at each position, scored by Gaussians of their distance or by dot products
// (Transformer-MGK Eq. 7-13).
#include <cmath>

#include "engine/nn/linear.h"
#include "headroom/nn/score.h"
#include "prior.h"
#include "shift.h"

namespace headroom::nn {
namespace {

class GaussianMixture : public Score {
 public:
  GaussianMixture(const config::AttentionOptions& o, const ScorePlace& place, const Builder& build)
      : options_(o),
        shift_(o, build),
        prior_(o, place.n_positions, build),
        rotary_(place.rotary),
        learned_(make_scale(o, build)) {
    std::vector<double> multiple = o.mixture_coefficients;
    if (multiple.empty()) {
      multiple.assign(static_cast<std::size_t>(o.key_components()), 0.5);
    }
    std::vector<at::Tensor> each;  // made by operators, so that a traced layer can make them, too
    for (const double value : multiple) {
      each.push_back(at::full({}, value, build.options()));
    }
    multiple_ = at::stack(each);
  }

  at::Tensor operator()(ops::AttentionInputs in, const ScoreCall& call, const Context& context) const override {
    const double fixed = 1.0 / std::sqrt(static_cast<double>(options_.d_head));
    ops::Mixture mixture;
    mixture.more_keys = call.more_keys;
    mixture.shift = shift_.of_keys(in.k.sym_size(2), call.first_position, rotary_);
    mixture.prior = prior_.weights(call.first_index, in.k.sym_size(2));
    mixture.maximum = options_.mixing == config::Mixing::max;
    mixture.epsilon = options_.mixture_epsilon;
    if (options_.mixture_score == config::MixtureScore::gaussian) {
      mixture.coefficient = learned_.defined() ? multiple_ * learned_ : multiple_ * fixed;
      in.scale = fixed;  // of the relative term
      if (learned_.defined() && in.q_position) {
        in.q_position = *in.q_position * to_compute(learned_, context);
        in.scale = 1.0;
      }
    } else {
      apply_scale(in, learned_, fixed, context);
    }
    const std::optional<at::Tensor> prior = mixture.prior;
    in.mixture = std::move(mixture);
    const bool measures = prior_.updates() && context.training && context.updates != nullptr;
    if (!measures && !context.wants("responsibilities")) {
      return run_attention(in, options_.dropout, context);
    }
    // What the prior measures needs every pair's components, which the reference hands out.
    std::vector<at::Tensor> components;
    const at::Tensor o =
        run_attention(in, options_.dropout, context, [&](ops::AttentionStage stage, const at::Tensor& value) {
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
  // What each component has of a pair's weight, [B, R, H, T, S]: all of it is the largest one's where that alone
  // counts.
  at::Tensor responsibilities(const std::vector<at::Tensor>& components, const std::optional<at::Tensor>& prior) const {
    const at::Tensor s = at::stack(components, 1);
    if (options_.mixing == config::Mixing::max) {
      return at::zeros_like(s).scatter(1, s.argmax(1, /*keepdim=*/true), 1.0);
    }
    at::Tensor mass = s;
    if (prior) {
      const at::Tensor by_head = prior->repeat_interleave(s.size(2) / prior->size(1), 1);  // [R, H, S or 1]
      mass = mass + by_head.log().unsqueeze(2).unsqueeze(0);
    }
    return mass.softmax(1).nan_to_num(0.0);
  }

  config::AttentionOptions options_;
  KeyShift shift_;
  MixturePrior prior_;
  std::optional<Rotary> rotary_;
  at::Tensor learned_;
  at::Tensor multiple_;  // [R], c_r = multiple_r * scale
};

const Factory<MakeScore> kGaussianMixture("gaussian_mixture",
                                          [](const config::AttentionOptions& options, const ScorePlace& place,
                                             const Builder& build) -> std::unique_ptr<Score> {
                                            return std::make_unique<GaussianMixture>(options, place, build);
                                          });

}  // namespace
}  // namespace headroom::nn
