// Conversions of a tiny dense model: what is exact is exact, the rest is fitted, and bad input is refused.
#include "tools/convert/convert.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/models/language_model.h"
#include "headroom/store/checkpoint.h"
#include "headroom/store/open_model.h"
#include "tiny/folder.h"
#include "tools/convert/fit.h"
#include "tools/convert/shared_keys.h"
#include "training/train/loop/train.h"

namespace headroom::convert {
namespace {

namespace fs = std::filesystem;
using Settings = std::vector<std::string>;

class ConvertTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int line = 0; line < 4000; ++line) {
      text += fmt::format("line {} says {} and {}\n", line, line * line % 97, line % 7 == 0 ? "stops" : "goes on");
    }
    write_text_file(folder_ / "text.txt", text);
  }

  config::Config dense() const {
    config::Config c;
    c.model.vocabulary_size = 256;
    c.model.n_layers = 2;
    c.model.d_model = 24;
    c.model.context_length = 32;
    c.model.mlp.d_hidden = 32;
    c.model.attention.n_heads = 4;
    c.model.attention.d_head = 6;
    c.tokenizer.kind = config::TokenizerKind::bytes;
    c.tokenizer.vocabulary_size = 256;
    c.data.train = {(folder_ / "text.txt").string()};
    c.train.steps = 30;
    c.train.batch_size = 8;
    c.train.learning_rate = 1e-2;
    c.train.evaluate_every = 0;
    c.train.checkpoint_every = 0;
    c.train.threads = 1;
    return c;
  }

  void train(const config::Config& config) const {
    train::train({.config = config, .out = folder_ / "dense", .cache = folder_ / "cache"});
  }

  // A conversion to the source's config with these keys of [model.attention], "key=value".
  ConvertRequest request(const Settings& settings) const {
    ConvertRequest r{.source = (folder_ / "dense").string(), .to = "target.toml", .target = dense()};
    for (const std::string& setting : settings) {
      config::set_key(r.target, "model.attention." + setting);
    }
    r.tokens = 4096;
    r.fit_steps = 40;
    r.out = folder_ / "converted.safetensors";
    r.cache = folder_ / "cache";
    return r;
  }

  at::Tensor logits(const std::string& run) const {
    const at::NoGradGuard guard;
    const store::OpenedModel opened = store::open_model(run, {.threads = 1, .precision = config::Precision::fp32});
    models::Memory memory;
    return models::as_language_model(*opened.model, "test")
        .logits(at::arange(64, at::kLong).view({2, 32}) * 3 % 256, memory, {});
  }

  void expect_refused(const ConvertRequest& r, const std::string& part) const {
    try {
      convert(r);
      ADD_FAILURE() << "not refused: " << part;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
    EXPECT_FALSE(fs::exists(r.out));
  }

  tiny::Folder folder_;
};

TEST_F(ConvertTest, ComposedAndGatedHeadsStartExactly) {
  config::Config source = dense();
  source.model.attention.bias = true;
  train(source);
  const at::Tensor expected = logits((folder_ / "dense").string());
  const Settings exact[] = {
      {"composition=dynamic"}, {"composition=dynamic", "compose_static=true", "compose_skip=false"},
      {"composition=static"},  {"gate_output=head"},
      {"gate_output=element"}, {},
  };
  for (const Settings& settings : exact) {
    const Conversion made = convert(request(settings));
    EXPECT_TRUE(made.exact);
    EXPECT_NEAR(made.loss_after, made.loss_before, 1e-5);
    EXPECT_LT((logits((folder_ / "converted.safetensors").string()) - expected).abs().max().item<double>(), 1e-4);
  }
}

// The gates stay with their heads.
TEST_F(ConvertTest, ForgetGatesAreKept) {
  config::Config source = dense();
  source.model.attention.position = "forgetting";
  train(source);
  const auto forgetting = [&](const std::string& setting) {
    return convert(request({"position=forgetting", setting}));
  };
  const Conversion composed = forgetting("composition=static");
  EXPECT_TRUE(composed.exact);
  EXPECT_NEAR(composed.loss_after, composed.loss_before, 1e-5);
  const Conversion fewer = forgetting("n_heads=2");
  EXPECT_FALSE(fewer.exact);
  EXPECT_LT(fewer.loss_after, 5.0);
  const Conversion exclusive = forgetting("exclusive=true");
  EXPECT_FALSE(exclusive.exact);
}

TEST_F(ConvertTest, FewerHeadsAreFittedAndTheSameCommandGivesTheSameBytes) {
  train(dense());
  const Settings targets[] = {
      {"sink=true"},
      {"projection=experts", "n_heads=2", "d_head=8", "n_experts=2", "top_k=1"},
      {"n_heads=2"},
      {"n_kv_heads=2"},
      {"score=gaussian_mixture", "n_heads=2", "mixture_score=dot"},
      {"projection=gated_heads", "top_k=2"},
      {"projection=shared_and_routed", "shared_heads=1", "top_k=2"},
      // The width differs from the source's, and all rotary channels rotate.
      {"projection=latent", "d_head=8", "kv_rank=6"},
      {"projection=tied", "d_head=8", "n_kv_heads=2"},
      {"projection=factored", "d_head=8", "kv_rank=2"},
  };
  for (const Settings& settings : targets) {
    const Conversion made = convert(request(settings));
    ASSERT_EQ(made.layers.size(), 2U);
    for (const LayerError& layer : made.layers) {
      EXPECT_LE(layer.fitted, layer.start);
      EXPECT_LT(layer.fitted, 1.0);
    }
    const std::string first = read_text_file(folder_ / "converted.safetensors");
    convert(request(settings));
    EXPECT_EQ(read_text_file(folder_ / "converted.safetensors"), first);
  }
}

TEST_F(ConvertTest, ConvertsTheNamedLayersOnly) {
  train(dense());
  ConvertRequest r = request({"n_heads=2"});
  r.layers = {1};
  const Conversion made = convert(r);
  EXPECT_EQ(made.converted, r.layers);
  EXPECT_EQ(made.layers.size(), 1U);
  const store::Checkpoint source = store::read_checkpoint(store::find_checkpoint((folder_ / "dense").string())),
                          result = store::read_checkpoint(r.out);
  EXPECT_EQ(result.config.model.of_layer(0).attention.n_heads, 4);
  EXPECT_EQ(result.config.model.of_layer(1).attention.n_heads, 2);
  const auto same = [&](const char* name) { return at::equal(result.tensors.at(name), source.tensors.at(name)); };
  EXPECT_TRUE(same("model.layer0.attention.w_q") && same("model.layer1.ffn.w_up"));
  EXPECT_EQ(result.tensors.at("model.layer1.attention.w_q").size(1), 2);
  r.layers = {2};
  fs::remove(r.out);
  expect_refused(r, "--layers");
}

TEST_F(ConvertTest, ChosenLayersStayWithinTheBudget) {
  train(dense());
  ConvertRequest r = request({"n_heads=1"});
  r.choose_layers = true;
  r.budget = 0.0;
  const Conversion none = convert(r);
  ASSERT_EQ(none.layer_losses.size(), 2U);
  EXPECT_LE(none.loss_after, none.loss_before);
  r.budget = 100.0;
  EXPECT_EQ(convert(r).converted, (std::vector<std::int64_t>{0, 1}));
}

// Layer 2 costs least and goes first; with layer 0 the sum of both stays within the budget, with layer 1 it does not.
TEST(ChooseLayersTest, TakesTheCheapestWhileTheSumFits) {
  const double alone[] = {0.02, 0.05, 0.01};
  std::vector<LayerLoss> measured;
  const auto loss = [&](const Layers& layers) {
    double sum = 3.0;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      sum += layers[i] ? alone[i] : 0.0;
    }
    return sum;
  };
  EXPECT_EQ(choose_layers(3, 0.04, loss, measured), (Layers{true, false, true}));
  ASSERT_EQ(measured.size(), 3U);
  EXPECT_NEAR(measured[1].added, 0.05, 1e-12);
}

// With all heads and the full rank, nothing limits the closed form but the ridge, and it is the least-squares solution.
TEST(ValueFitTest, IsTheLeastSquaresSolutionWithoutALimit) {
  const std::int64_t n = 400, heads = 2, d = 5;
  const at::Tensor z = at::randn({n, heads * d}, at::make_generator<at::CPUGeneratorImpl>(3), at::kDouble);
  const at::Tensor y = at::randn({n, d}, at::make_generator<at::CPUGeneratorImpl>(4), at::kDouble);
  const at::Tensor features = at::cat({z, at::ones({n, 1}, at::kDouble)}, 1);
  HeadSums sums{.gram = at::mm(features.t(), features),
                .cross = at::mm(features.t(), y),
                .energy = y.square().sum().item<double>(),
                .n_heads = heads,
                .width = d,
                .queries = static_cast<double>(n)};
  const at::Tensor best = std::get<0>(at::linalg_lstsq(features, y));
  const double least = (y - at::mm(features, best)).square().sum().item<double>() / sums.energy;
  const ValueFit fit = fit_values(sums, {0, 1}, d, /*with_bias=*/true);
  EXPECT_NEAR(fit.error, least, 1e-5);
  // The error is that of the factors which are returned.
  at::Tensor predicted = fit.bias.unsqueeze(0).expand({n, d});
  for (std::int64_t h = 0; h < heads; ++h) {
    predicted = predicted + at::mm(at::mm(z.narrow(1, h * d, d), fit.values[h]), fit.outputs[h]);
  }
  EXPECT_NEAR((y - predicted).square().sum().item<double>() / sums.energy, fit.error, 1e-9);
}

TEST(ValueFitTest, ChoosesTheHeadsThatMatter) {
  const std::int64_t n = 400, heads = 4, d = 3;
  const at::Tensor z = at::randn({n, heads * d}, at::make_generator<at::CPUGeneratorImpl>(3), at::kDouble);
  const at::Tensor y = z.narrow(1, 0, d) + 2.0 * z.narrow(1, 2 * d, d);  // heads 0 and 2
  const at::Tensor features = at::cat({z, at::ones({n, 1}, at::kDouble)}, 1);
  const HeadSums sums{.gram = at::mm(features.t(), features),
                      .cross = at::mm(features.t(), y),
                      .energy = y.square().sum().item<double>(),
                      .n_heads = heads,
                      .width = d,
                      .queries = static_cast<double>(n)};
  EXPECT_EQ(choose_heads(sums, 2, d, false).heads, (std::vector<std::int64_t>{0, 2}));
  EXPECT_EQ(choose_heads(sums, 3, d, false).heads.size(), 3U);
  EXPECT_LT(choose_heads(sums, 2, d, false).error, 1e-4);
}

at::Tensor random_tensor(at::IntArrayRef sizes, std::uint64_t seed) {
  return at::randn(sizes, at::make_generator<at::CPUGeneratorImpl>(seed), at::kDouble);
}

// Rotates channels (i, i + c/2) of [n, H, c] by an angle per pair.
at::Tensor rotated(const at::Tensor& x, const at::Tensor& angles) {
  const std::int64_t half = x.size(2) / 2;
  const at::Tensor a = x.narrow(2, 0, half), b = x.narrow(2, half, half), c = angles.cos(), s = angles.sin();
  return at::cat({a * c - b * s, a * s + b * c}, 2);
}

TEST(SharedKeysTest, HeadsWhoseKeysAreOneKeyTurnedAndScaledKeepTheirScores) {
  const std::int64_t d = 7, heads = 3, channels = 6, n = 50;
  const at::Tensor q = random_tensor({d, heads, channels}, 1), one = random_tensor({d, 1, channels}, 2),
                   x = random_tensor({n, d}, 3), turns = random_tensor({heads, channels / 2}, 4),
                   scales = random_tensor({heads, channels / 2}, 5).abs() + 0.5;
  const at::Tensor k = rotated(one.expand({d, heads, channels}), turns) * at::cat({scales, scales}, 1);
  const SharedKeys shared = share_rotated(q, k, Roots(at::mm(x.t(), x) / n));
  const at::Tensor positions = random_tensor({channels / 2}, 6);  // the difference of two positions, as angles
  const auto scores = [&](const at::Tensor& queries, const at::Tensor& keys) {
    const at::Tensor from = rotated(at::einsum("nd,dhc->nhc", {x, queries}), positions);
    return at::einsum("ihc,jhc->hij", {from, at::einsum("nd,dhc->nhc", {x, keys})});
  };
  const at::Tensor all = shared.keys.unsqueeze(1).expand({d, heads, channels});
  EXPECT_LT((scores(shared.queries, all) - scores(q, k)).abs().max().item<double>(), 1e-9);
}

TEST(SharedKeysTest, LowRankFactorsReadWhitenedChannelsAndAreExactAtFullRank) {
  const at::Tensor x = at::mm(random_tensor({200, 5}, 1), random_tensor({5, 5}, 2)), matrix = random_tensor({5, 9}, 3);
  const Roots roots(at::mm(x.t(), x) / 200.0);
  const LowRank full = low_rank(matrix, at::ones({9}, at::kDouble), 5, roots);
  EXPECT_LT((at::mm(full.down, full.up) - matrix).abs().max().item<double>(), 1e-8);
  const at::Tensor c = at::mm(x, low_rank(matrix, random_tensor({9}, 4).abs(), 2, roots).down);
  EXPECT_LT((at::mm(c.t(), c) / 200.0 - at::eye(2, at::kDouble)).abs().max().item<double>(), 1e-8);
}

TEST(SharedKeysTest, PlainChannelsKeepTheirScoresAtFullRank) {
  const at::Tensor q = random_tensor({5, 2, 3}, 1), k = random_tensor({5, 2, 3}, 2), x = random_tensor({40, 5}, 3);
  const SharedKeys shared = share_plain(q, k, 5, Roots(at::mm(x.t(), x) / 40.0));
  const at::Tensor before = at::einsum("id,dhc,jf,fhc->hij", {x, q, x, k});
  const at::Tensor after = at::einsum("id,dhr,jf,fr->hij", {x, shared.queries, x, shared.keys});
  EXPECT_LT((after - before).abs().max().item<double>(), 1e-8);
}

TEST_F(ConvertTest, LatentsAndRoutedHeadsStartFromTheSource) {
  train(dense());
  const auto error_of = [&](const Settings& settings) {
    ConvertRequest r = request(settings);
    r.fit_steps = 1;  // reports the errors of the start
    const Conversion made = convert(r);
    double sum = 0.0;
    for (const LayerError& layer : made.layers) {
      sum += layer.start;
    }
    return sum / 2.0;
  };
  const double wide = error_of({"projection=latent", "kv_rank=24", "d_rotary=4"}),
               narrow = error_of({"projection=latent", "kv_rank=4", "d_rotary=4"});
  EXPECT_LT(wide, 0.5);
  EXPECT_LT(wide, narrow);
  EXPECT_LT(error_of({"projection=routed_heads", "n_experts=4", "top_k=4"}), 1.0);
}

TEST_F(ConvertTest, RefusesWhatCannotBeConverted) {
  train(dense());
  ConvertRequest wide = request({});
  wide.target.model.d_model = 48;
  expect_refused(wide, "d_model");
  expect_refused(request({"position=none"}), "position");
  ConvertRequest hungry = request({"n_heads=2"});
  hungry.tokens = 1 << 20;
  expect_refused(hungry, "--tokens");
  convert(request({"composition=dynamic"}));
  ConvertRequest again = request({"n_heads=2"});
  again.source = (folder_ / "converted.safetensors").string();
  again.out = folder_ / "again.safetensors";
  expect_refused(again, "composition");
}

}  // namespace
}  // namespace headroom::convert
