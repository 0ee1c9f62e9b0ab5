#include "tools/analyse/measures.h"

#include <gtest/gtest.h>

#include "small_model.h"

namespace headroom::analyse::induction_test {

TEST(Induction, PrefixMatchingOfKnownWeights) {
  constexpr std::int64_t kHalf = 5;
  at::Tensor perfect = at::zeros({2, 2 * kHalf, 2 * kHalf});
  for (std::int64_t i = 0; i < kHalf; ++i) {
    perfect[0][kHalf + i][i + 1] = 1.0;
    perfect[1][kHalf + i][i] = 1.0;  // attends to the token itself
  }
  const at::Tensor score = prefix_matching(perfect, kHalf).mean(-1);
  EXPECT_EQ(score[0].item<float>(), 1.0F);
  EXPECT_EQ(score[1].item<float>(), 0.0F);
  const at::Tensor uniform = at::ones({1, 10, 10}).tril();
  EXPECT_NEAR(prefix_matching(uniform / uniform.sum(-1, true), kHalf).mean().item<double>(),
              prefix_matching_by_chance(kHalf), 1e-6);
  EXPECT_NEAR(prefix_matching(at::full({1, 10, 10}, 0.1), kHalf).mean().item<double>(), 0.1, 1e-6);
}

TEST(Induction, CopyingOfKnownLogits) {
  const at::Tensor looks = at::eye(6).unsqueeze(0);
  EXPECT_NEAR(copying(at::eye(6).unsqueeze(0) * 3.0, looks).mean().item<double>(), 1.0, 1e-6);
  EXPECT_NEAR(copying(-at::eye(6).unsqueeze(0), looks).mean().item<double>(), 0.0, 1e-6) << "lowers the attended token";
  const at::Tensor other = at::eye(6).roll(1, 0).unsqueeze(0);
  EXPECT_NEAR(copying(other, looks).mean().item<double>(), 0.0, 1e-6) << "raises another token";
}

// A hand-made induction head. The residual stream holds one-hot vectors of the token, the position and the previous
// token. Layer 0 attends to the previous position and writes its token; layer 1 attends to positions whose previous
// token is the current one, and copies the token there.
store::OpenedModel hand_made() {
  constexpr std::int64_t kV = 260, kT = 12, kD = 2 * kV + kT;
  store::OpenedModel opened =
      small::small_model(fmt::format("d_model={} context_length={} norm=rms attention.n_heads=1 attention.d_head={} "
                                     "attention.position=learned mlp.d_hidden=1",
                                     kD, kT, kV),
                         /*noise=*/0.0);
  const ModelRunner runner(opened);
  for (const nn::Parameter& p : opened.model->parameters().all()) {
    p.name.ends_with("scale") ? p.tensor.fill_(1.0) : p.tensor.zero_();
  }
  const at::Tensor names = at::eye(kV), places = at::eye(kT);
  constexpr double kSure = 2000.0;  // makes the softmax one-hot
  runner.parameter("embed").narrow(1, 0, kV).copy_(names);
  runner.parameter("position").narrow(1, kV, kT).copy_(places);
  const auto matrix = [&](const std::string& name) { return runner.parameter("layer" + name).squeeze(1); };
  // Layer 0: position i attends to i - 1; its token is written after the positions.
  matrix("0.attention.w_q").narrow(0, kV + 1, kT - 1).narrow(1, 0, kT - 1).copy_(at::eye(kT - 1) * kSure);
  matrix("0.attention.w_k").narrow(0, kV, kT).narrow(1, 0, kT).copy_(places);
  matrix("0.attention.w_v").narrow(0, 0, kV).copy_(names);
  runner.parameter("layer0.attention.w_o")[0].narrow(1, kV + kT, kV).copy_(names);
  // Layer 1: the token matches the previous token of the key.
  matrix("1.attention.w_q").narrow(0, 0, kV).copy_(names * kSure);
  matrix("1.attention.w_k").narrow(0, kV + kT, kV).copy_(names);
  // The first token has no previous token and wrote itself; queries must not attend to it for that reason.
  matrix("1.attention.w_q").narrow(0, kV, kT).narrow(1, kV - 1, 1).fill_(kSure);
  matrix("1.attention.w_k").narrow(0, kV, 1).narrow(1, kV - 1, 1).fill_(-40.0);
  matrix("1.attention.w_v").narrow(0, 0, kV).copy_(names);
  runner.parameter("layer1.attention.w_o")[0].narrow(1, 0, kV).copy_(names);
  runner.parameter("head.w").narrow(0, 0, kV).copy_(names);
  return opened;
}

TEST(Induction, AHandMadeInductionHeadScoresOne) {
  const Findings induction = small::found(hand_made(), "induction", "abc");
  const Json& heads = induction.metrics.at("lengths")[0].at("heads");
  EXPECT_NEAR(induction.metrics.at("lengths")[0].at("by_chance").at("copying").get<double>(), 1.0 / 6.0, 1e-12);
  for (const Figure& figure : induction.figures) {
    EXPECT_TRUE((figure.remark + figure.blocks.dump()).find("chance") != std::string::npos ||
                figure.caption.find("on repeated random tokens") != std::string::npos)
        << figure.caption;
  }
  const Json& best = heads[0];
  EXPECT_EQ(best.at("rank"), 1);
  EXPECT_EQ(best.at("layer"), "layer1");
  EXPECT_NEAR(best.at("prefix_matching").get<double>(), 1.0, 1e-4);
  EXPECT_NEAR(best.at("copying").get<double>(), 1.0, 1e-4);
  const Json& other = heads[1];
  EXPECT_NEAR(other.at("prefix_matching").get<double>(), 0.0, 1e-4) << "the head that attends to the previous position";
}

// Each of the experts 2 and 0 of 4 is a group of two heads: slot g K + k has head g of the k-th routed expert.
TEST(Induction, SlotsOfGroupsHaveTheirHeads) {
  config::ModelOptions o = small::small_options();
  small::set_groups_of_heads(o.attention);
  const RoutedExperts routing = {at::tensor({2, 0}, at::kLong).view({1, 1, 2}), at::tensor({0.7, 0.3}).view({1, 1, 2})};
  EXPECT_TRUE(heads_in_slots(routing, o.attention).equal(at::tensor({2, 0, 6, 4}, at::kLong).view({1, 4})));
  EXPECT_TRUE(routing_of_slots(routing, o.attention).weight[0][1].equal(routing.weight[0][0]));
}

// For every projection, the outputs of the heads sum to the layer's output.
TEST(Induction, HeadsAddUpToTheOutput) {
  for (const std::string& projection : small::kProjections) {
    config::ModelOptions o = small::small_options();
    small::set_projection(o.attention, projection);
    const store::OpenedModel opened = small::small_model(o);
    const nn::Recorder values = small::recorded(opened, "add up");
    RoutedExperts choice;
    for (const std::string side : {"layer1.attention.select_out", "layer1.attention.select"}) {
      if (values.values.contains(side + ".index")) {
        choice = {values.at(side + ".index"), values.at(side + ".weight")};
      }
    }
    const at::Tensor each =
        head_outputs(ModelRunner(opened), "layer1.attention", values.at("layer1.attention.o"), choice);
    EXPECT_EQ(each.size(1), values.at("layer1.attention.o").size(1));
    EXPECT_TRUE(at::allclose(each.sum(1), values.at("layer1.attention.out"), 1e-4, 1e-5)) << projection;
  }
}

}  // namespace headroom::analyse::induction_test
