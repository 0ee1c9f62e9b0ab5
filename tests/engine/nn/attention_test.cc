#include "headroom/nn/attention.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/ops/gradients.h"
#include "headroom/config/attention_part.h"
#include "headroom/core/error.h"
#include "one_thread.h"

namespace headroom::nn {
namespace attention_test {

using config::AttentionOptions;
using testing::evaluate;
using testing::expect_close;
using testing::relative_error;

constexpr std::int64_t kWidth = 12;

AttentionOptions small(const std::string& position) {
  AttentionOptions o;
  o.n_heads = 2;
  o.d_head = 6;
  o.n_experts = 4;
  o.top_k = 2;
  o.position = position;
  o.rope_fraction = 0.67;
  return o;
}

AttentionOptions with_experts(AttentionOptions o, const std::string& which, bool shared = false) {
  o.projection = "experts";
  o.experts.clear();
  for (const char c : which) {
    o.experts.emplace_back(1, c);
  }
  o.shared_selection = shared;
  return o;
}

// Attention layers: projections, caches, decoding and errors.
std::vector<std::pair<std::string, AttentionOptions>> layers() {
  std::vector<std::pair<std::string, AttentionOptions>> all;
  for (const std::string position : {"none", "rope", "relative"}) {
    const std::string name(position);
    AttentionOptions dense = small(position);
    all.emplace_back("dense " + name, dense);
    dense.bias = true;
    dense.qk_norm = true;
    dense.scale = config::Scale::learned;
    dense.position_bias = position == "relative";
    all.emplace_back("dense with everything " + name, dense);
    AttentionOptions grouped = small(position);
    grouped.n_heads = 4;
    grouped.n_kv_heads = 2;
    all.emplace_back("grouped " + name, grouped);
    for (int mask = 1; mask < 16; ++mask) {
      std::string which;
      for (int bit = 0; bit < 4; ++bit) {
        which += (mask >> bit & 1) != 0 ? std::string(1, "qkvo"[bit]) : "";
      }
      all.emplace_back("experts " + which + " " + name, with_experts(small(position), which));
      all.emplace_back("experts " + which + " shared " + name, with_experts(small(position), which, true));
    }
    AttentionOptions softmax = with_experts(small(position), "vo");
    softmax.gate = config::Gate::softmax_top_k;
    all.emplace_back("softmax gate " + name, softmax);
  }
  return all;
}

struct Layer {
  Parameters parameters;
  Attention attention;
  Layer(const AttentionOptions& o, at::ScalarType type, std::int64_t window = 0, bool causal = true)
      : attention(
            o, {.d_model = kWidth, .n_layers = 2, .causal = causal, .window = window},
            Builder(parameters, at::make_generator<at::CPUGeneratorImpl>(std::uint64_t{7}), at::TensorOptions(type))) {
    const at::NoGradGuard no_grad;  // biases begin at zero, which would hide mistakes
    for (const Parameter& p : parameters.all()) {
      p.tensor.add_(at::randn(p.tensor.sizes(), at::kDouble).to(type), 0.2);
    }
  }
};

at::Tensor source_of(const std::vector<at::Tensor>& x) {
  return at::cat({x[0], x[1]}, 1);
}

TEST(Attention, FusedEqualsReferenceWithAllGradients) {
  for (const auto& [name, options] : layers()) {
    at::manual_seed(3);
    Layer layer(options, at::kFloat);
    const std::vector<at::Tensor> in = {at::randn({2, 5, kWidth}), at::randn({2, 5, kWidth})};
    const auto run = [&](Implementation impl) {
      return [&, impl](const std::vector<at::Tensor>& x) {
        Context context;
        context.implementation = impl;
        AttentionInput input;
        input.x = x[1];
        input.source = source_of(x);
        return layer.attention(input, context);
      };
    };
    expect_close(evaluate(run(Implementation::fused), in), evaluate(run(Implementation::reference), in), 1e-5, name);
  }
}

TEST(Attention, GradientsAreFiniteDifferencesInDouble) {
  for (const auto& [name, options] : layers()) {
    at::manual_seed(4);
    Layer layer(options, at::kDouble);
    const at::Tensor memory = at::randn({1, 3, kWidth}, at::kDouble), x = at::randn({1, 3, kWidth}, at::kDouble);
    const at::Tensor weight = at::randn({1, 3, kWidth}, at::kDouble);
    const auto objective = [&] {
      AttentionInput input;
      input.x = x;
      input.source = at::cat({memory, x}, 1);
      return (layer.attention(input, Context()) * weight).sum();
    };
    objective().backward();
    const at::NoGradGuard no_grad;
    for (const Parameter& p : layer.parameters.all()) {
      if (p.name.starts_with("select")) {
        continue;  // a step may change the choice; the weights' derivative is tested by the reference cases
      }
      const at::Tensor direction = at::randn_like(p.tensor), before = p.tensor.clone();
      const double step = 1e-5;
      p.tensor.copy_(before + step * direction);
      const double up = objective().item<double>();
      p.tensor.copy_(before - step * direction);
      const double down = objective().item<double>();
      p.tensor.copy_(before);
      const double expected = (up - down) / (2 * step);
      const double got = (p.tensor.grad() * direction).sum().item<double>();
      // The difference quotient errs by step^2 times a third derivative and by 1e-16 / step.
      EXPECT_NEAR(got, expected, 1e-6 * std::max(1.0, std::abs(expected))) << name << " " << p.name;
    }
  }
}

TEST(Attention, TheFutureChangesNothing) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, options] : layers()) {
    at::manual_seed(5);
    Layer layer(options, at::kDouble);
    const at::Tensor x = at::randn({1, 6, kWidth}, at::kDouble);
    at::Tensor changed = x.clone();
    changed.narrow(1, 4, 2).normal_();
    AttentionInput a, b;
    a.x = x;
    b.x = changed;
    const at::Tensor before = layer.attention(a, Context()).narrow(1, 0, 4);
    EXPECT_LE(relative_error(layer.attention(b, Context()).narrow(1, 0, 4), before), 1e-14) << name;
  }
}

TEST(Attention, StepByStepWithTheCacheEqualsTheWhole) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, options] : layers()) {
    for (const std::int64_t window : {0, 3}) {
      at::manual_seed(6);
      Layer layer(options, at::kDouble, window);
      const at::Tensor x = at::randn({2, 7, kWidth}, at::kDouble);
      AttentionInput all;
      all.x = x;
      const at::Tensor whole = layer.attention(all, Context());
      std::vector<AttentionCache> caches(2, AttentionCache(7));
      const std::vector<AttentionCache*> rows = {&caches[0], &caches[1]};
      std::vector<at::Tensor> pieces;
      for (const auto& [begin, count] : std::vector<std::pair<int, int>>{{0, 3}, {3, 1}, {4, 1}, {5, 2}}) {
        AttentionInput piece;
        piece.x = x.narrow(1, begin, count);
        piece.caches = rows;
        pieces.push_back(layer.attention(piece, Context()));
      }
      EXPECT_LE(relative_error(at::cat(pieces, 1), whole), 1e-12) << name << " window " << window;
      EXPECT_THROW(layer.attention({.x = x.narrow(1, 0, 1), .caches = rows}, Context()), Error);
    }
  }
}

TEST(Attention, PaddedKeysDoNotCount) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, options] : layers()) {
    if (options.position == "relative") {
      continue;  // a shorter source would shift the queries
    }
    at::manual_seed(8);
    Layer layer(options, at::kDouble, 0, /*causal=*/false);
    const at::Tensor x = at::randn({1, 6, kWidth}, at::kDouble);
    AttentionInput padded, plain;
    padded.x = x;
    padded.valid_keys = at::arange(6).lt(4).unsqueeze(0);
    plain.x = x.narrow(1, 0, 4);
    EXPECT_LE(relative_error(layer.attention(padded, Context()).narrow(1, 0, 4), layer.attention(plain, Context())),
              1e-12)
        << name;
  }
}

TEST(Attention, SharedSelectionWithoutMemoryChoosesOnce) {
  at::manual_seed(9);
  Layer layer(with_experts(small("none"), "vo", true), at::kFloat);
  Recorder recorder({"select_*.index"});
  ExpertUsage usage;
  Context context;
  context.observer = &recorder;
  context.usage = &usage;
  layer.attention({.x = at::randn({2, 5, kWidth})}, context);
  EXPECT_TRUE(at::equal(recorder.at("select_in.index"), recorder.at("select_out.index")));
  ASSERT_EQ(usage.size(), 1U);
  EXPECT_EQ(usage.at("select_in").sum().item<std::int64_t>(), 2 * 5 * 2 * 2);  // B T H k
}

TEST(Attention, ExpertDropoutNeedsASeedAndDependsOnNothingElse) {
  AttentionOptions o = with_experts(small("none"), "vo");
  o.expert_dropout = 0.5;
  Layer layer(o, at::kFloat);
  const at::Tensor x = at::randn({2, 5, kWidth});
  Context context;
  context.training = true;
  EXPECT_THROW(layer.attention({.x = x}, context), Error);
  const auto run = [&](std::uint64_t seed) {
    context.random = {.seed = seed};
    return layer.attention({.x = x}, context);
  };
  EXPECT_TRUE(at::equal(run(1), run(1)));
  EXPECT_FALSE(at::equal(run(1), run(2)));
}

TEST(Attention, CrossAttentionHasNoOrder) {
  Parameters parameters;
  const Builder build(parameters, at::make_generator<at::CPUGeneratorImpl>(std::uint64_t{1}), at::kFloat);
  const AttentionPlace across{.d_model = kWidth, .causal = false, .cross = true};
  EXPECT_THROW(Attention(small("rope"), across, build), UserError);
  EXPECT_THROW(Attention(small("relative"), across, build), UserError);
  const Attention attention(small("none"), across, build);
  const at::Tensor x = at::randn({2, 3, kWidth}), source = at::randn({2, 9, kWidth});
  EXPECT_EQ(attention({.x = x, .source = source}, {}).sizes(), x.sizes());
}

}  // namespace attention_test

// Every part of attention in config has a layer, and every layer a part.
namespace factory_test {

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

}  // namespace factory_test

// Dropout of attention weights.
namespace attention_dropout_test {

constexpr std::int64_t kRows = 4, kTokens = 37, kWidth = 24, kHeads = 3;
constexpr double kDropped = 0.3;

struct Layer {
  Parameters parameters;
  std::unique_ptr<Attention> attention;
  explicit Layer(const char* score, const char* composition) {
    config::AttentionOptions o;
    o.n_heads = kHeads;
    o.d_head = 8;
    o.score = score;
    o.composition = composition;
    o.dropout = kDropped;
    attention = std::make_unique<Attention>(
        o, AttentionPlace{.d_model = kWidth, .context_length = kTokens},
        Builder(parameters, at::make_generator<at::CPUGeneratorImpl>(std::uint64_t{1}), at::kDouble));
  }
};

at::Tensor input() {
  return at::randn({kRows, kTokens, kWidth}, at::make_generator<at::CPUGeneratorImpl>(std::uint64_t{2}), at::kDouble);
}

Context training() {
  Context context;
  context.training = true;
  context.random = Randomness{.seed = 7, .rows = kRows};
  return context;
}

class AttentionDropout : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};

// Each weight is 0 (with probability p) or multiplied by 1 / (1 - p).
TEST_P(AttentionDropout, LeavesWeightsOut) {
  const Layer layer(GetParam().first, GetParam().second);
  const auto weights = [&](Context context) {
    Recorder recorder({"probs"});
    context.observer = &recorder;
    (*layer.attention)({.x = input()}, context);
    return recorder.at("probs");
  };
  const at::Tensor whole = weights(Context{}), dropped = weights(training());
  const at::Tensor seen = whole.gt(0.0), gone = dropped.eq(0.0).logical_and(seen);
  EXPECT_TRUE(at::allclose(dropped, (whole / (1.0 - kDropped)).masked_fill(gone, 0.0)));
  const double n = seen.sum().item<double>(), share = gone.sum().item<double>() / n;
  EXPECT_NEAR(share, kDropped, 5.0 * std::sqrt(kDropped * (1.0 - kDropped) / n));
  EXPECT_FALSE(gone[0].equal(gone[1])) << "rows of a batch share no mask";
}

// No dropout in evaluation; the gradient uses the same mask as the forward pass.
TEST_P(AttentionDropout, IsForTrainingOnly) {
  const Layer layer(GetParam().first, GetParam().second);
  const at::Tensor x = input().requires_grad_(true);
  const auto run = [&](const Context& context) { return (*layer.attention)({.x = x}, context); };
  EXPECT_TRUE(run(Context{}).equal(run(Context{})));
  EXPECT_TRUE(run(training()).equal(run(training()))) << "the mask is of the seed";
  EXPECT_FALSE(at::allclose(run(training()), run(Context{})));
  const at::Tensor direction = input().sin(), weight = input().cos();
  constexpr double kStep = 1e-6;
  const at::Tensor slope = ((*layer.attention)({.x = x.detach() + kStep * direction}, training()) -
                            (*layer.attention)({.x = x.detach() - kStep * direction}, training()))
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

TEST(AttentionDropout, HasTheReferenceOnly) {
  const Layer layer("dot", "none");
  Context context = training();
  context.implementation = Implementation::fused;
  EXPECT_THROW((*layer.attention)({.x = input()}, context), UserError);
}

}  // namespace attention_dropout_test

}  // namespace headroom::nn
