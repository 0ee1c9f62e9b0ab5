// Tests how heads are allocated to layers under a budget.
#include "tools/convert/heads.h"

#include <random>

#include "conversion.h"
#include "tools/convert/fit.h"
#include "tools/convert/layer_conversion.h"
#include "training/cost/cost.h"

namespace headroom::convert::heads_test {

using Chosen = std::vector<std::size_t>;

double sum_of(const std::vector<LayerOptions>& options, const Chosen& chosen, std::size_t value) {
  double sum = 0.0;
  for (std::size_t layer = 0; layer < options.size(); ++layer) {
    sum += options[layer][chosen[layer]].values[value];
  }
  return sum;
}

// Calls visit() with every combination of choices.
void for_each_choice(const std::vector<LayerOptions>& options, const std::function<void(const Chosen&)>& visit) {
  Chosen chosen(options.size(), 0);
  for (bool more = true; more;) {
    visit(chosen);
    more = false;
    for (std::size_t layer = 0; layer < options.size() && !more; ++layer) {
      more = ++chosen[layer] < options[layer].size();
      chosen[layer] = more ? chosen[layer] : 0;
    }
  }
}

// Option 4 takes the keys of the layer below, which is impossible if that layer has option 3.
bool has_keys(const Chosen& chosen) {
  for (std::size_t layer = 0; layer < chosen.size(); ++layer) {
    if (chosen[layer] == 4 && (layer == 0 || chosen[layer - 1] == 3)) {
      return false;
    }
  }
  return true;
}

// Six layers have five options with random values; the first value may have any sign. Limits range from impossible to
// loose. The fifth option takes keys, and the fourth gives none.
TEST(AllocateTest, FindsWhatTryingAllChoicesFinds) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> uniform(0.0, 1.0);
  int met = 0;
  for (int round = 0; round < 40; ++round) {
    const std::size_t n = 2 + static_cast<std::size_t>(round % 2);
    std::vector<LayerOptions> options(
        6, LayerOptions(5, LayerOption{.values = std::vector<double>(n), .gives_keys = true}));
    for (LayerOptions& layer : options) {
      layer[3].gives_keys = false;
      layer[4].takes_keys = true;
      for (auto& [values, takes, gives] : layer) {
        values[0] = uniform(random) - 0.2;
        for (std::size_t i = 1; i < n; ++i) {
          values[i] = std::floor(8.0 * uniform(random));
        }
      }
    }
    std::vector<double> limits(n, 6.0 * 8.0 * uniform(random));
    const std::size_t minimise = static_cast<std::size_t>(round) / 20;
    limits[0] = minimise == 0 ? std::numeric_limits<double>::infinity() : 2.0 * uniform(random);
    double least = std::numeric_limits<double>::infinity();
    for_each_choice(options, [&](const Chosen& chosen) {
      bool fits = has_keys(chosen);
      for (std::size_t i = 0; i < n; ++i) {
        fits = fits && sum_of(options, chosen, i) <= limits[i];
      }
      least = fits ? std::min(least, sum_of(options, chosen, minimise)) : least;
    });
    const auto found = allocate(options, limits, minimise);
    ASSERT_EQ(found.has_value(), std::isfinite(least)) << round;
    if (found) {
      ++met;
      EXPECT_TRUE(has_keys(*found)) << round;
      EXPECT_NEAR(sum_of(options, *found, minimise), least, 1e-12) << round;
      for (std::size_t i = 0; i < n; ++i) {
        EXPECT_LE(sum_of(options, *found, i), limits[i]) << round;
      }
    }
  }
  EXPECT_GT(met, 20);
}

TEST(BudgetTest, ReadsLimits) {
  const std::vector<Limit> limits = parse_budget("macs=0.5,loss=1");
  ASSERT_EQ(limits.size(), 2U);
  EXPECT_EQ(limits[0].key, "macs");
  EXPECT_EQ(limits[0].value, 0.5);
  EXPECT_EQ(limits[1].value, 1.0);
  for (const char* wrong : {"", "macs", "macs=", "macs=0", "macs=1.1", "macs=-1", "macs=nan", "flops=0.5",
                            "macs=0.5,macs=0.6", "macs=0.5,"}) {
    EXPECT_THROW(parse_budget(wrong), UserError) << wrong;
  }
}

class HeadsTest : public ConvertTest {
 protected:
  HeadsRequest budget(const std::string& text) const {
    HeadsRequest r{.convert = request(""), .budget = parse_budget(text)};
    r.convert.fit_steps = 30;
    return r;
  }
  void change_source(HeadsRequest& request, const std::function<void(store::Checkpoint&)>& change) const {
    store::Checkpoint source = store::read_checkpoint(store::find_checkpoint(request.convert.source));
    change(source);
    request.convert.source = (folder_ / "changed.safetensors").string();
    store::save_checkpoint(source, request.convert.source);
  }
  config::Config written() const { return store::read_checkpoint(folder_ / "converted.safetensors").config; }
};

TEST_F(HeadsTest, StayWithinEachBudget) {
  train(dense());
  const HeadsResult half = choose_heads_by_layer(budget("macs=0.5"));
  ASSERT_EQ(half.chosen.layers.size(), 2U);
  const auto macs = [](const config::Config& config) {
    return static_cast<double>(cost::executed_cost(config.model, 1).attention_macs);
  };
  EXPECT_LE(macs(written()), 0.5 * macs(dense()));
  EXPECT_NEAR(macs(written()) / macs(dense()), half.chosen.shares[0], 1e-9);
  EXPECT_TRUE(with_layers(dense(), std::vector(2, dense("n_heads=1").model)).model.layers.empty());
  EXPECT_EQ(config::to_toml(half.config), config::to_toml(written()));
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    const LayerChoice& own = half.chosen.layers[static_cast<std::size_t>(layer)];
    EXPECT_EQ(written().model.of_layer(layer).attention.n_heads, own.heads.heads);
    EXPECT_GE(own.loss, 0.0);
  }
  ASSERT_TRUE(half.uniform);
  EXPECT_LE(half.chosen.predicted, half.uniform->predicted);
  EXPECT_LE(half.uniform->shares[0], 0.5);
  EXPECT_LT(half.uniform_loss, 6.0);
  // Another budget needs no new measurements: the cached files of the layers do not change.
  const auto layer_files = [&] {
    std::vector<fs::file_time_type> all;
    for (const auto& entry : fs::recursive_directory_iterator(folder_ / "cache" / "heads")) {
      if (entry.path().filename().string().starts_with("layer")) {
        all.push_back(entry.last_write_time());
      }
    }
    return all;
  };
  const std::vector<fs::file_time_type> before = layer_files();
  const HeadsResult both = choose_heads_by_layer(budget("kv_cache=0.25,macs=0.9"));
  EXPECT_EQ(layer_files(), before);
  EXPECT_EQ(before.size(), 2U);
  EXPECT_LE(cost::decoding_cache_elements(written().model) * 4, cost::decoding_cache_elements(dense().model));
  EXPECT_LE(macs(written()), 0.9 * macs(dense()));
  EXPECT_EQ(both.costs, (std::vector<std::string>{"kv_cache", "macs"}));
  // The same request gives the same bytes, even after the cache is damaged.
  const std::string bytes = read_text_file(folder_ / "converted.safetensors");
  for (const auto& entry : fs::recursive_directory_iterator(folder_ / "cache" / "heads")) {
    if (entry.is_regular_file()) {
      write_text_file(entry.path(), "x");
    }
  }
  choose_heads_by_layer(budget("kv_cache=0.25,macs=0.9"));
  EXPECT_EQ(read_text_file(folder_ / "converted.safetensors"), bytes);
}

// The second layer adds nothing, so half of the cost is spent on the first one.
TEST_F(HeadsTest, ALayerWhoseHeadsAreZeroGetsNone) {
  train(dense());
  HeadsRequest half = budget("macs=0.5");
  change_source(half, [](store::Checkpoint& source) {
    at::Tensor& output = source.tensors.at("model.layer1.attention.w_o");
    output = at::zeros_like(output);
  });
  const HeadsResult result = choose_heads_by_layer(half);
  EXPECT_EQ(result.chosen.layers[0].heads, (Heads{.heads = 4, .kv_heads = 4}));
  EXPECT_EQ(result.chosen.layers[1].heads, Heads{});
  EXPECT_EQ(result.conversion.loss_after, result.conversion.loss_before);
  EXPECT_EQ(written().model.of_layer(1).attention.n_heads, 0);
}

// This little storage needs shared keys, or else the loss of a layer or of most keys.
TEST_F(HeadsTest, LayersShareKeysWithinABudgetOfTheCache) {
  const config::Config source = dense("n_heads=1 d_head=24");
  train(source);
  HeadsRequest half = budget("kv_cache=0.5");
  half.convert.target = source;
  half.convert.joint_steps = 0;
  const HeadsResult result = choose_heads_by_layer(half);
  EXPECT_EQ(result.chosen.layers[1].heads, (Heads{.heads = 1, .kv_heads = 0, .experts = 0, .shares = true}));
  EXPECT_EQ(cost::decoding_cache_elements(written().model) * 2, cost::decoding_cache_elements(source.model));
  EXPECT_EQ(to_json(result)["layers"][1]["shared_with"], 0);
  EXPECT_HAS(to_text(result), "of layer 0");
  EXPECT_LT(result.measured, 1.0);
  EXPECT_NEAR(result.conversion.loss_after - result.conversion.loss_before, result.measured, 1e-6);
}

// Layers 1 and 2 of the source share keys and stay as they are. The result can be converted again.
TEST_F(HeadsTest, SourcesMayShareKeys) {
  config::Config source = dense("n_heads=6 d_head=4");
  source.model.n_layers = 3;
  source.model.layers = {{.repeat = 2, .attention = {}, .mlp = {}},
                         {.repeat = 1, .attention = {{"share_kv", "1"}}, .mlp = {}}};
  train(source);
  HeadsRequest most = budget("kv_cache=0.7");
  for (const char* name : {"first.safetensors", "second.safetensors"}) {
    most.convert.out = folder_ / name;
    const HeadsResult result = choose_heads_by_layer(most);
    EXPECT_LT(result.chosen.layers[0].heads.kv_heads, 6);
    EXPECT_EQ(to_json(result)["layers"][2]["shared_with"], 1);
    most.convert.source = most.convert.out.string();
    most.budget = parse_budget("kv_cache=0.9");
  }
}

// The step time is limited, too. 4 key heads cannot serve the 6 query heads of the layer above.
TEST_F(HeadsTest, OwnersOfSharedKeysServeAllHeads) {
  train(dense("n_heads=6 d_head=4"));
  const std::vector<double> shares = choose_heads_by_layer(budget("step_time=1,kv_cache=0.4")).chosen.shares;
  EXPECT_TRUE(shares.at(0) > 0.0 && shares[0] <= 1.0 && shares.at(1) <= 0.4) << shares[0] << ", " << shares[1];
}

TEST_F(HeadsTest, TheCacheKnowsTheSourcesConfig) {
  train(dense());
  HeadsRequest half = budget("macs=0.5");
  const double whole = choose_heads_by_layer(half).chosen.predicted;
  change_source(half, [](store::Checkpoint& source) { source.config.model.attention.window = 2; });
  EXPECT_NE(choose_heads_by_layer(half).chosen.predicted, whole);
}

TEST_F(HeadsTest, LossesAreLimitedToo) {
  train(dense());
  const HeadsResult little = choose_heads_by_layer(budget("loss=0.001")),
                    much = choose_heads_by_layer(budget("loss=1"));
  EXPECT_LE(little.chosen.predicted, 0.001);
  EXPECT_LT(much.chosen.shares[0], little.chosen.shares[0] + 1e-9);
  EXPECT_EQ(much.costs, std::vector<std::string>{"macs"});
  EXPECT_THROW(choose_heads_by_layer(budget("loss=0.000001,macs=0.001")), UserError);
  fs::remove_all(folder_ / "dense");
  train(dense("n_heads=0"));
  EXPECT_THROW(choose_heads_by_layer(budget("macs=0.5")), UserError);
}

TEST_F(HeadsTest, AWholeBudgetKeepsTheSource) {
  train(dense());
  HeadsRequest whole = budget("macs=1,kv_cache=1");
  whole.experts = 2;
  const HeadsResult result = choose_heads_by_layer(whole);
  EXPECT_EQ(result.conversion.loss_after, result.conversion.loss_before);
  const auto source = store::read_checkpoint(store::find_checkpoint((folder_ / "dense").string()));
  const auto same = store::read_checkpoint(whole.convert.out);
  EXPECT_EQ(config::differing_keys(same.config.model, source.config.model), std::vector<std::string>());
  for (const auto& [name, tensor] : same.tensors) {
    EXPECT_TRUE(tensor.equal(source.tensors.at(name))) << name;
  }
}

// Returns the sums from which fit_values() maps head outputs z [n, H d] to y [n, d].
HeadSums sums_of(const at::Tensor& z, const at::Tensor& y) {
  const at::Tensor features = at::cat({z, at::ones({z.size(0), 1}, at::kDouble)}, 1);
  return {.gram = at::mm(features.t(), features),
          .cross = at::mm(features.t(), y),
          .energy = y.square().sum().item<double>(),
          .n_heads = z.size(1) / y.size(1),
          .width = y.size(1),
          .queries = static_cast<double>(z.size(0))};
}

// With all heads and the full rank, only the ridge limits the closed form, which is the least-squares solution.
TEST(ValueFitTest, IsTheLeastSquaresSolutionWithoutALimit) {
  const std::int64_t n = 400, heads = 2, d = 5;
  const at::Tensor z = random_tensor({n, heads * d}, 3), y = random_tensor({n, d}, 4);
  const at::Tensor features = at::cat({z, at::ones({n, 1}, at::kDouble)}, 1);
  const at::Tensor best = std::get<0>(at::linalg_lstsq(features, y));
  HeadSums sums = sums_of(z, y);
  const double least = (y - at::mm(features, best)).square().sum().item<double>() / sums.energy;
  const ValueFit fit = fit_values(sums, {0, 1}, d, /*with_bias=*/true);
  EXPECT_NEAR(fit.error, least, 1e-5);
  // The returned factors must have the returned error.
  at::Tensor predicted = fit.bias.unsqueeze(0).expand({n, d});
  for (std::int64_t h = 0; h < heads; ++h) {
    predicted = predicted + at::mm(at::mm(z.narrow(1, h * d, d), fit.values[h]), fit.outputs[h]);
  }
  EXPECT_NEAR((y - predicted).square().sum().item<double>() / sums.energy, fit.error, 1e-9);
}

TEST(ValueFitTest, ChoosesTheHeadsThatMatter) {
  const std::int64_t d = 3;
  const at::Tensor z = random_tensor({400, 4 * d}, 3);
  const HeadSums sums = sums_of(z, z.narrow(1, 0, d) + 2.0 * z.narrow(1, 2 * d, d));  // heads 0 and 2
  EXPECT_EQ(choose_heads(sums, 2, d, false).heads, (std::vector<std::int64_t>{0, 2}));
  EXPECT_EQ(choose_heads(sums, 3, d, false).heads.size(), 3U);
  EXPECT_LT(choose_heads(sums, 2, d, false).error, 1e-4);
}

}  // namespace headroom::convert::heads_test
