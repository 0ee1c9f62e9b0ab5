// Linear attention: feature maps instead of a softmax, with one key or a mixture of keys at each position
// (Katharopoulos et al.; MLK and sMLK, Transformer-MGK Eq. 13).
#include <cmath>

#include "engine/nn/linear.h"
#include "engine/ops/many_rows.h"
#include "engine/ops/shapes.h"
#include "gaussian_mixture.h"
#include "headroom/config/part_options.h"
#include "headroom/core/error.h"
#include "headroom/nn/attention_parts.h"

namespace headroom::nn {
namespace {

class LinearScore : public Score {
 public:
  LinearScore(const config::AttentionOptions& o, const ScorePlace& place, const Builder& build)
      : options_(o.of<config::LinearOptions>()),
        n_components_(o.key_components()),
        per_head_(1.0 / std::sqrt(static_cast<double>(o.d_head))),
        shift_(o, build),
        prior_(o, place.n_positions, build),
        place_(place) {}

  at::Tensor operator()(ops::AttentionInputs in, const ScoreCall& call, const Context& context) const override {
    ops::LinearAttentionInputs linear;
    linear.q = feature(in.q);
    linear.k = key_features(in, call);
    linear.v = in.v;
    linear.causal = in.mask.causal;
    linear.valid_keys = in.mask.valid_keys;
    linear.factor = options_.score_scale == config::ScoreScale::inv_sqrt_head ? per_head_ : 1.0;
    linear.output_factor = output_factor(in.q.sym_size(2));
    linear.normalise = options_.normaliser == config::Normaliser::sum;
    linear.epsilon = options_.normaliser_epsilon;
    if (call.state == nullptr) {
      context.show("probs", [&] { return weights(linear); });
      return ops::linear_attention(linear, context.implementation);
    }
    std::vector<at::Tensor>& sums = *call.state;
    ops::LinearState state = sums.empty() ? ops::LinearState() : ops::LinearState{sums[0], sums[1]};
    at::Tensor o = ops::linear_attention(linear, context.implementation, &state);
    sums = {state.kv, state.k};
    return o;
  }

 private:
  at::Tensor feature(const at::Tensor& x) const {
    at::Tensor wide = x.scalar_type() == at::kDouble ? x : x.to(at::kFloat);
    wide = ops::has_values(wide) ? wide : wide.contiguous();  // as with_dense_gradient()
    const at::Tensor positive =
        with_dense_gradient(ops::elementwise(wide, [](const at::Tensor& some) { return at::elu(some); })) + 1.0;
    return options_.feature_map == config::FeatureMap::elu_plus_one_l1 ? positive / positive.sum(-1, /*keepdim=*/true)
                                                                       : positive;
  }

  // Returns psi_j, the features of the mixture of keys, [B, G, S, e].
  at::Tensor key_features(const ops::AttentionInputs& in, const ScoreCall& call) const {
    const bool after = options_.linear_mixing == config::LinearMixing::after_map;
    const std::optional<at::Tensor> shift = shift_.of_keys(in.k.sym_size(2), call.first_position, place_.rotary);
    const std::optional<at::Tensor> prior = prior_.weights(call.first_index, in.k.sym_size(2));
    at::Tensor sum;
    for (std::int64_t r = 0; r < n_components_; ++r) {
      const at::Tensor key = shift    ? in.k - shift->select(0, r)
                             : r == 0 ? in.k
                                      : call.more_keys[static_cast<std::size_t>(r - 1)];
      at::Tensor term = after ? feature(key) : key;
      if (prior) {
        term = term * prior->select(0, r).unsqueeze(2);
      }
      sum = sum.defined() ? sum + term : term;
    }
    return after ? sum : feature(sum);
  }

  // Returns the weights [B, H, T, S] of the values for observers; the operator never forms them.
  static at::Tensor weights(const ops::LinearAttentionInputs& in) {
    const std::int64_t h = in.q.size(1), t = in.q.size(2), s = in.k.size(2);
    at::Tensor a = in.q.matmul(in.k.repeat_interleave(h / in.k.size(1), 1).transpose(2, 3)) * in.factor;
    if (in.causal) {
      a = a.tril(s - t);
    }
    if (in.valid_keys) {
      a = a * in.valid_keys->unsqueeze(1).unsqueeze(2);
    }
    if (in.normalise) {
      const at::Tensor sum = a.sum(-1, /*keepdim=*/true) + in.epsilon;
      a = a / sum.masked_fill(sum.eq(0.0), 1.0);
    }
    return a * in.output_factor;
  }

  double output_factor(const c10::SymInt& n_queries) const {
    switch (options_.output_scale) {
      case config::OutputScale::none:
        return 1.0;
      case config::OutputScale::inv_sqrt_head:
        return per_head_;
      case config::OutputScale::inv_sqrt_length:
        return 1.0 / std::sqrt(static_cast<double>(
                         place_.context_length > 0 ? place_.context_length : n_queries.guard_int(__FILE__, __LINE__)));
    }
    fail("model.attention.output_scale: unknown");
  }

  config::LinearOptions options_;
  std::int64_t n_components_;  // keys at each position
  double per_head_;            // 1/sqrt(d_head)
  KeyShift shift_;
  MixturePrior prior_;
  ScorePlace place_;
};

const Factory<MakeScore> kLinearScore("linear", make_part<Score, LinearScore>);

}  // namespace
}  // namespace headroom::nn
