#include "headroom/config/attention_part.h"
#include "headroom/config/part_options.h"
#include "layer.h"
#include "one_thread.h"

namespace headroom::nn::attention_test {

using config::AttentionOptions;

constexpr std::int64_t kWidth = 12;

AttentionOptions small(const std::string& position, const std::string& more = "") {
  return attention_options(
      fmt::format("n_heads=2 d_head=6 n_experts=4 top_k=2 position={} rope_fraction=0.67 {}", position, more));
}

Layer small_layer(const AttentionOptions& o, at::ScalarType type, std::int64_t context_length = 7) {
  return Layer(o, {.d_model = kWidth, .n_layers = 2, .context_length = context_length}, type, /*noise=*/0.2);
}

TEST(Attention, SharedSelectionWithoutMemoryRoutesOnce) {
  at::manual_seed(9);
  const Layer layer = small_layer(small("none", "projection=experts shared_selection=true"), at::kFloat);
  Recorder recorder({"select_*.index"});
  ExpertUsage usage;
  const Context context{.usage = &usage, .observer = &recorder};
  layer.attention({.x = at::randn({2, 5, kWidth})}, context);
  EXPECT_TRUE(at::equal(recorder.at("select_in.index"), recorder.at("select_out.index")));
  ASSERT_EQ(usage.size(), 1U);
  EXPECT_EQ(usage.at("select_in").sum().item<std::int64_t>(), 2 * 5 * 2 * 2);  // B T H k
}

struct Formula {
  const char *score, *mask;
};
constexpr std::pair<const char*, const char*> kLearned[] = {
    {"slope", R"({shape = "head", start = 0.4})"},
    {"offset", R"({shape = "head"})"},
    {"near", R"({shape = "head, distance", size = 4})"},
    {"far", R"({shape = "distance", size = 6})"},
    {"decay", R"({shape = "token, head", from = "softplus"})"},
    {"total", R"({shape = "token", from = "log_sigmoid", cumulative = true})"}};
constexpr Formula kFormulas[] = {{"s - slope * (i - j)", ""},
                                 {"20 * tanh(s / 20) + offset * j", "i - j < 5"},
                                 {"s + near[h, i - j]", ""},
                                 {"s + near[h, j - i]", "j % 3 != 1"},
                                 {"s * far[i - j]", ""},
                                 {"s + far[(i - j) // 2]", "i - j < 9 or j < 2"},
                                 {"s + far[i] * far[j]", ""},
                                 {"s + near[h, 2.5 * log1p(i - j)]", ""},
                                 {"s + total(i) - total(j)", ""},
                                 {"s * sigmoid(decay(j))", "i // 4 == j // 4"},
                                 {"s - decay(i) * abs(decay(j))", ""},
                                 {"s + slope * decay(i) * (i - j)", "h % 2 == 1 or i - j < 3"},
                                 {"relu(s - offset) ** 2", ""},
                                 {"where(i - j < 3, s, s - slope)", ""},
                                 {"max(s, -decay(j))", "i > j or j == 0"},
                                 {"min(s, near[h, j])", "not (j == 3)"},
                                 {"softplus(s) * far[i % 4]", ""},
                                 {"s / (1 + exp(-offset)) - log_sigmoid(slope * (i - j))", "j < 12 and i - j < 16"},
                                 {"s * sqrt(1 + decay(i)) + h * offset * j", "i - j != 2"},
                                 {"log1p(exp(s)) + total(i) - total(j) + far[j]", "i < 3 or j > 1"}};

AttentionOptions with_formula(const std::string& score, const std::string& mask) {
  AttentionOptions o = small("none");
  auto& dot = o.of<config::DotOptions>();
  dot.formula = score;
  dot.mask = mask;
  for (const auto& [name, value] : kLearned) {
    if (score.find(name) != std::string::npos) {
      dot.learned += (dot.learned.empty() ? "" : ", ") + std::string(name) + " = " + value;
    }
  }
  return o;
}

constexpr std::int64_t kMany = 23;  // tokens, more than the tables have elements

at::Tensor many_tokens(at::ScalarType type) {
  at::manual_seed(3);
  return at::randn({2, kMany, kWidth}, at::kDouble).to(type);
}

TEST(Attention, FormulasDecodeAsTheFullPass) {
  const at::NoGradGuard no_grad;
  for (const auto& [score, mask] : kFormulas) {
    for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
      const Layer layer = small_layer(with_formula(score, mask), type, kMany);
      const at::Tensor x = many_tokens(type), whole = layer.last(x, kMany);
      RowCaches caches(layer.attention, 2);
      EXPECT_LE(testing::relative_error(caches.read_all(layer.attention, x, {2, 3}), whole),
                type == at::kDouble ? 1e-12 : 1e-5)
          << score;
    }
  }
}

TEST(Attention, IndicesBeyondATableReadItsLastElement) {
  const at::NoGradGuard no_grad;
  const at::Tensor x = many_tokens(at::kFloat);
  const Layer clamped = small_layer(with_formula("s + near[h, min(max(i - j - 2, 0), 3)]", ""), at::kFloat);
  EXPECT_TRUE(
      small_layer(with_formula("s + near[h, i - j - 2]", ""), at::kFloat).last(x, kMany).equal(clamped.last(x, kMany)));
}

TEST(Attention, ExpertDropoutNeedsASeedAndDependsOnNothingElse) {
  const Layer layer = small_layer(small("none", "projection=experts expert_dropout=0.5"), at::kFloat);
  const at::Tensor x = at::randn({2, 5, kWidth});
  Context context{.training = true};
  EXPECT_THROW(layer.attention({.x = x}, context), Error);
  const auto run = [&](std::uint64_t seed) {
    context.random = {.seed = seed};
    return layer.attention({.x = x}, context);
  };
  EXPECT_TRUE(at::equal(run(1), run(1)));
  EXPECT_FALSE(at::equal(run(1), run(2)));
}

TEST(Attention, CrossAttentionHasNoOrder) {
  const AttentionPlace across{.d_model = kWidth, .causal = false, .cross = true};
  EXPECT_THROW(Layer(small("rope"), across), UserError);
  EXPECT_THROW(Layer(small("relative"), across), UserError);
  const Layer layer(small("none"), across, at::kFloat);
  const at::Tensor x = at::randn({2, 3, kWidth}), source = at::randn({2, 9, kWidth});
  EXPECT_EQ(layer.attention({.x = x, .source = source}, {}).sizes(), x.sizes());
}

}  // namespace headroom::nn::attention_test

// Tests that every attention part in config has a layer, and every layer a part.
namespace headroom::nn::factory_test {

template <class Part, class Make>
void expect_layers() {
  for (const Part* part : config::all_parts<Part>()) {
    EXPECT_NE(factory_of<Make>(part->name()), nullptr) << part->name();
  }
  EXPECT_EQ(config::all_parts<Part>().size(), factories<Make>().size());
}

TEST(Factory, EveryPartHasALayer) {
  expect_layers<config::ProjectionPart, MakeProjection>();
  expect_layers<config::ScorePart, MakeScore>();
  expect_layers<config::CompositionPart, MakeComposition>();
  expect_layers<config::PositionPart, MakePosition>();
  expect_layers<config::OutputGatePart, MakeOutputGate>();
  EXPECT_THROW(factory_of<MakeScore>("liner"), Error);
}

}  // namespace headroom::nn::factory_test

namespace headroom::nn::attention_dropout_test {

constexpr std::int64_t kRows = 4, kTokens = 37, kWidth = 24, kHeads = 3;
constexpr double kDropped = 0.3;

Layer dropping_layer(const std::pair<const char*, const char*>& score_and_composition) {
  config::AttentionOptions o;
  o.n_heads = kHeads;
  o.d_head = 8;
  o.score = score_and_composition.first;
  o.composition = score_and_composition.second;
  o.dropout = kDropped;
  return Layer(o, {.d_model = kWidth, .context_length = kTokens});
}

at::Tensor input() {
  return at::randn({kRows, kTokens, kWidth}, at::make_generator<at::CPUGeneratorImpl>(std::uint64_t{2}), at::kDouble);
}

Context training() {
  Context context{.training = true, .random = Randomness{.seed = 7, .rows = kRows}};
  return context;
}

class AttentionDropout : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};

// Each weight is 0 with probability p, and otherwise multiplied by 1 / (1 - p).
TEST_P(AttentionDropout, ZeroesOrScalesWeights) {
  const Layer layer = dropping_layer(GetParam());
  const auto weights = [&](Context context) {
    Recorder recorder({"probs"});
    context.observer = &recorder;
    layer.attention({.x = input()}, context);
    return recorder.at("probs");
  };
  const at::Tensor whole = weights(Context{}), dropped = weights(training());
  const at::Tensor seen = whole.gt(0.0), gone = dropped.eq(0.0).logical_and(seen);
  EXPECT_TRUE(at::allclose(dropped, (whole / (1.0 - kDropped)).masked_fill(gone, 0.0)));
  const double n = seen.sum().item<double>(), share = gone.sum().item<double>() / n;
  EXPECT_NEAR(share, kDropped, 5.0 * std::sqrt(kDropped * (1.0 - kDropped) / n));
  EXPECT_FALSE(gone[0].equal(gone[1])) << "rows of a batch share no mask";
}

// Evaluation has no dropout, and the gradient uses the same mask as the forward pass.
TEST_P(AttentionDropout, IsForTrainingOnly) {
  const Layer layer = dropping_layer(GetParam());
  const at::Tensor x = input().requires_grad_(true);
  const auto run = [&](const Context& context) { return layer.attention({.x = x}, context); };
  EXPECT_TRUE(run(Context{}).equal(run(Context{})));
  EXPECT_TRUE(run(training()).equal(run(training()))) << "the mask is of the seed";
  EXPECT_FALSE(at::allclose(run(training()), run(Context{})));
  const at::Tensor direction = input().sin(), weight = input().cos();
  constexpr double kStep = 1e-6;
  const at::Tensor slope = (layer.attention({.x = x.detach() + kStep * direction}, training()) -
                            layer.attention({.x = x.detach() - kStep * direction}, training()))
                               .mul(weight)
                               .sum() /
                           (2.0 * kStep);
  run(training()).mul(weight).sum().backward();
  const double analytic = (x.grad() * direction).sum().item<double>();
  EXPECT_NEAR(analytic, slope.item<double>(), 1e-6 * (1.0 + std::abs(analytic)));
}

INSTANTIATE_TEST_SUITE_P(Scores, AttentionDropout,
                         ::testing::Values(std::pair("dot", "none"), std::pair("dot", "dynamic"),
                                           std::pair("gaussian_mixture", "none"), std::pair("sigmoid", "none")),
                         [](const auto& pair) { return std::string(pair.param.first) + "_" + pair.param.second; });

}  // namespace headroom::nn::attention_dropout_test
