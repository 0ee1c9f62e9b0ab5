// Linear attention layers against their equations (Katharopoulos et al.; MLK and sMLK, Transformer-MGK
// Eq. 13), with every scale, feature map and mixing point.
#include <ATen/ATen.h>

#include <cmath>

#include "engine/ops/gradients.h"
#include "headroom/config/attention/score_options.h"
#include "layer.h"
#include "one_thread.h"

namespace headroom::nn {
namespace linear_score_test {

using config::AttentionOptions;

constexpr std::int64_t kWidth = 6, kHeads = 2, kHead = 3, kMixtures = 2, kTokens = 5;

at::Tensor feature(const at::Tensor& z, config::FeatureMap map) {
  const at::Tensor phi = at::where(z.gt(0), z + 1.0, z.exp());
  return map == config::FeatureMap::elu_plus_one ? phi : phi / phi.sum(-1, true);
}

// x [B, T, d] times w [d, H, e]: [B, H, T, e].
at::Tensor projected(const at::Tensor& x, const at::Tensor& w) {
  return at::einsum("btd,dhe->bhte", {x, w});
}

// psi_j: phi(k_j), or with a mixture sum_r pi_r phi(k_jr) or phi(sum_r pi_r k_jr).
at::Tensor key_features(const AttentionOptions& o, const Parameters& p, const at::Tensor& x) {
  const auto& linear = o.of<config::LinearOptions>();
  const auto& mixture = o.of<config::MixtureOptions>();
  if (mixture.keys == config::Keys::single) {
    return feature(projected(x, p.at("w_k")), linear.feature_map);
  }
  at::Tensor features, keys;
  for (std::int64_t r = 0; r < kMixtures; ++r) {
    const at::Tensor key = mixture.keys == config::Keys::own
                               ? projected(x, p.at("w_k")[r])
                               : projected(x, p.at("w_k")) - p.at("shift")[r].unsqueeze(0).unsqueeze(2);
    const at::Tensor pi = p.at("prior")[r].view({1, kHeads, 1, 1});
    features =
        features.defined() ? features + pi * feature(key, linear.feature_map) : pi * feature(key, linear.feature_map);
    keys = keys.defined() ? keys + pi * key : pi * key;
  }
  return linear.linear_mixing == config::LinearMixing::after_map ? features : feature(keys, linear.feature_map);
}

// a_ij = [1 / sqrt e] phi(q_i) . psi_j, o_i = c sum_j a_ij v_j [/ (sum_j a_ij + epsilon)], c = 1, 1 / sqrt e or
// 1 / sqrt(length).
at::Tensor by_hand(const AttentionOptions& o, const Parameters& p, const at::Tensor& x, bool causal,
                   std::int64_t length) {
  const auto& linear = o.of<config::LinearOptions>();
  at::Tensor a = feature(projected(x, p.at("w_q")), linear.feature_map).matmul(key_features(o, p, x).transpose(2, 3));
  if (linear.score_scale == config::ScoreScale::inv_sqrt_head) {
    a = a / std::sqrt(static_cast<double>(kHead));
  }
  a = causal ? a.tril() : a;
  at::Tensor y = a.matmul(projected(x, p.at("w_v")));
  if (linear.normaliser == config::Normaliser::sum) {
    y = y / (a.sum(-1, true) + linear.normaliser_epsilon);
  }
  if (linear.output_scale != config::OutputScale::none) {
    const std::int64_t under = linear.output_scale == config::OutputScale::inv_sqrt_head ? kHead : length;
    y = y / std::sqrt(static_cast<double>(under));
  }
  return at::einsum("bhte,hed->btd", {y, p.at("w_o")});
}

TEST(LinearScore, MatchesItsEquation) {
  const at::NoGradGuard no_grad;
  AttentionOptions o;
  auto& linear = o.of<config::LinearOptions>();
  auto& mixture = o.of<config::MixtureOptions>();
  o.n_heads = kHeads;
  o.d_head = kHead;
  mixture.n_mixtures = kMixtures;
  o.position = "none";
  o.score = "linear";
  linear.normaliser_epsilon = 0.3;
  for (int choice = 0; choice < 2 * 2 * 2 * 2 * 3 * 3 * 2 * 2; ++choice) {
    int rest = choice;
    const auto pick = [&](int n) {
      const int one = rest % n;
      rest /= n;
      return one;
    };
    linear.feature_map = static_cast<config::FeatureMap>(pick(2));
    linear.linear_mixing = static_cast<config::LinearMixing>(pick(2));
    linear.normaliser = static_cast<config::Normaliser>(pick(2));
    linear.score_scale = static_cast<config::ScoreScale>(pick(2));
    linear.output_scale = static_cast<config::OutputScale>(pick(3));
    mixture.keys = static_cast<config::Keys>(pick(3));
    const bool causal = pick(2) == 1;
    const std::int64_t context_length = pick(2) == 1 ? 9 : 0;  // 0: the length of the call
    at::manual_seed(choice);
    const Layer layer(o, {.d_model = kWidth, .causal = causal, .context_length = context_length});
    for (const Parameter& p : layer.parameters.all()) {
      p.name == "prior" ? p.tensor.uniform_(0.1, 0.9) : p.tensor.normal_();
    }
    const at::Tensor x = at::randn({2, kTokens, kWidth}, at::kDouble);
    EXPECT_LE(
        testing::relative_error(layer.attention({.x = x}, {}),
                                by_hand(o, layer.parameters, x, causal, context_length > 0 ? context_length : kTokens)),
        1e-13)
        << config::name_of(mixture.keys) << " " << config::name_of(linear.score_scale) << " "
        << config::name_of(linear.output_scale) << " " << config::name_of(linear.normaliser) << " "
        << config::name_of(linear.feature_map) << " " << config::name_of(linear.linear_mixing) << " causal " << causal
        << " length " << context_length;
  }
}

}  // namespace linear_score_test
}  // namespace headroom::nn
