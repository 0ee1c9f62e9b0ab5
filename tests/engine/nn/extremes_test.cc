// Tests every kind of layer at its limits: huge scores, no visible key, one token, no valid token.

#include "combinations.h"
#include "engine/ops/gradients.h"
#include "headroom/config/part_options.h"
#include "headroom/nn/attention.h"
#include "one_thread.h"

namespace headroom::nn::extremes_test {

using testing::Choice;

// Returns encoders without positions: every legal product of parts, and every output gate.
std::vector<std::pair<std::string, config::ModelOptions>> layers() {
  std::vector<std::pair<std::string, config::ModelOptions>> all;
  config::ModelOptions base =
      tiny::changed(testing::small_model(), "", "kind=classifier n_classes=2 attention.position=none");
  base.attention.of<config::MixtureOptions>().n_mixtures = 7;  // more than the tokens
  const auto add = [&](const std::string& names, const config::ModelOptions& m) {
    if (testing::refusal(m).empty()) {
      all.emplace_back(names, m);
    }
  };
  const std::vector<Choice> axes[] = {testing::projections(), testing::scores(), testing::compositions()};
  testing::for_products(axes, add, base);
  const std::vector<Choice> gated[] = {testing::gated_projections()};
  testing::for_products(gated, add, base);
  return all;
}

struct Outcome {
  at::Tensor y;
  std::vector<at::Tensor> gradients;
};

Outcome run(const config::ModelOptions& m, const at::Tensor& x, const std::optional<at::Tensor>& valid, double factor) {
  Parameters parameters;
  const Attention attention(m.attention, {.d_model = m.d_model, .causal = false, .context_length = m.context_length},
                            Builder(parameters, ParameterSource(1, x.options())));
  std::vector<at::Tensor> leaves = {x.detach().clone().requires_grad_(true)};
  {
    const at::NoGradGuard no_grad;
    for (const Parameter& p : parameters.all()) {
      if (p.name == "w_q" || p.name == "w_k") {
        p.tensor.mul_(factor);
      }
      leaves.push_back(p.tensor);
    }
  }
  std::map<std::string, at::Tensor> losses;
  const Context context{.losses = &losses};
  Outcome result;
  result.y = attention({.x = leaves[0], .valid_keys = valid, .valid_queries = valid}, context);
  at::Tensor objective = result.y.square().sum();
  for (const auto& [name, loss] : losses) {
    objective = objective + loss;
  }
  result.gradients = torch::autograd::grad({objective}, leaves, {}, false, false, /*allow_unused=*/true);
  return result;
}

void expect_finite(const Outcome& r, const std::string& what) {
  EXPECT_TRUE(at::isfinite(r.y).all().item<bool>()) << what;
  for (std::size_t i = 0; i < r.gradients.size(); ++i) {
    if (r.gradients[i].defined()) {
      EXPECT_TRUE(at::isfinite(r.gradients[i]).all().item<bool>()) << what << ": gradient " << i;
    }
  }
}

TEST(Extremes, HugeScoresStayFinite) {
  for (const auto& [name, m] : layers()) {
    at::manual_seed(1);
    expect_finite(run(m, at::randn({2, 4, m.d_model}), std::nullopt, 1e2), name);  // scores up to 1e4 and more
  }
}

TEST(Extremes, NothingVisibleGivesZeroBeforeTheOutputProjection) {
  for (const auto& [name, m] : layers()) {
    at::manual_seed(2);
    const at::Tensor valid = at::zeros({2, 4}, at::kBool);
    valid[0].fill_(true);  // the second sequence is only padding
    const Outcome r = run(m, at::randn({2, 4, m.d_model}), valid, 1.0);
    expect_finite(r, name);
    EXPECT_EQ(r.y[1].abs().max().item<double>(), 0.0) << name;
    const Outcome none = run(m, at::randn({2, 4, m.d_model}), at::zeros({2, 4}, at::kBool), 1.0);
    expect_finite(none, name);
    EXPECT_EQ(none.y.abs().max().item<double>(), 0.0) << name;
  }
}

TEST(Extremes, OneTokenIsASequence) {
  for (const auto& [name, m] : layers()) {
    at::manual_seed(3);
    expect_finite(run(m, at::randn({1, 1, m.d_model}), std::nullopt, 1.0), name);
  }
}

}  // namespace headroom::nn::extremes_test
