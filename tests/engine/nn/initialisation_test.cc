// Tests the initialisation of every part of a layer. L: layers, d: d_model, H: heads, e: d_head, E: experts, R: rank or
// mixture keys, m: heads of a group.

#include "engine/nn/linear.h"
#include "headroom/nn/mlp.h"
#include "layer.h"
#include "starts.h"

namespace headroom::nn::initialisation_test {

using config::AttentionOptions;
using testing::constant;
using testing::normal;
using testing::Start;
using testing::Starts;
using testing::truncated;
using testing::uniform;

constexpr std::int64_t kLayers = 5, kWidth = 96, kHeads = 32, kHead = 8, kExperts = 4;

// Returns the deviation sqrt(2 / (L fan_in)); dense layers truncate it, SwitchHead does not (section 2.2).
double scaled(std::int64_t fan_in) {
  return std::sqrt(2.0 / static_cast<double>(kLayers * fan_in));
}
double glorot(std::int64_t in, std::int64_t out) {
  return std::sqrt(2.0 / static_cast<double>(in + out));
}

AttentionOptions heads(const std::string& keys) {
  const std::string base = fmt::format("n_heads={} d_head={} n_experts={} top_k=2 ", kHeads, kHead, kExperts);
  return attention_options(base + "position=none " + keys);
}

Starts projections(Start (*law)(double)) {
  return {{"w_q", law(scaled(kWidth))},
          {"w_k", law(scaled(kWidth))},
          {"w_v", law(scaled(kWidth))},
          {"w_o", law(scaled(kHeads * kHead))}};
}

Starts operator+(Starts all, const Starts& more) {
  all.insert(more.begin(), more.end());
  return all;
}

Parameters parameters_of(const std::string& keys, const Initialisation& rule = {}, std::int64_t width = kWidth) {
  Parameters parameters;
  const Attention attention(heads(keys), {.d_model = width, .n_layers = kLayers, .context_length = 16},
                            Builder(parameters, ParameterSource(1, at::kFloat), rule));
  return parameters;
}

void expect_layer(const std::string& keys, const Starts& expected, const Initialisation& rule = {}) {
  testing::expect_starts(parameters_of(keys, rule), expected, keys);
}

// With seeds by name, a parameter must have the same initial values in models with other parameters.
TEST(Initialisation, SeedsByNameDoNotDependOnOtherParameters) {
  const auto build_all = [](bool by_name, bool more) {
    Parameters parameters;
    const Builder build(parameters, ParameterSource(5), {.seeds_by_name = by_name});
    build.random("first", {3, 4}, Distribution::normal(1.0));
    if (more) {
      build.random("between", {7}, Distribution::normal(1.0));
    }
    build.in("layer").random("last", {3, 4}, Distribution::truncated_normal(1.0));
    return parameters;
  };
  const auto equal = [&](bool by_name, std::string_view name) {
    return at::equal(build_all(by_name, false).at(name), build_all(by_name, true).at(name));
  };
  EXPECT_TRUE(equal(true, "first") && equal(true, "layer.last"));
  EXPECT_FALSE(equal(false, "layer.last"));
  EXPECT_FALSE(at::equal(build_all(true, false).at("first"), build_all(true, false).at("layer.last")));
}

TEST(Initialisation, DenseLayers) {
  expect_layer("", projections(truncated));
  expect_layer("n_kv_heads=8", projections(truncated));
  const Starts zeros = {{"b_q", constant(0)}, {"b_k", constant(0)}, {"b_v", constant(0)},
                        {"b_o", constant(0)}, {"u", constant(0)},   {"v", constant(0)}};
  expect_layer("bias=true qk_norm=true position_bias=true position=relative scale=learned",
               projections(truncated) + zeros +
                   Starts{{"w_pos", truncated(scaled(kWidth))},
                          {"scale", constant(1.0 / std::sqrt(static_cast<double>(kHead)))},
                          {"q_norm", constant(1)},
                          {"k_norm", constant(1)}});
}

TEST(Initialisation, LayersOfExperts) {
  const std::string experts = "projection=experts position=relative ";
  const Starts all = projections(normal) + Starts{{"w_pos", normal(scaled(kWidth))},
                                                  {"select_in", normal(scaled(kWidth))},
                                                  {"select_out", normal(scaled(kWidth))}};
  expect_layer(experts, all);
  expect_layer(experts + R"(experts=["q","k","v","o"])", all);
  Starts shared = all;
  shared.erase("select_in");
  expect_layer(experts + R"(experts=["q","k","v","o"] shared_selection=true)", shared);
}

TEST(Initialisation, GatedHeads) {
  expect_layer("projection=gated_heads", projections(truncated) + Starts{{"select", normal(scaled(kWidth))}});
}

TEST(Initialisation, SharedAndRoutedHeads) {
  constexpr std::int64_t kTwice = 2 * kWidth;  // gives every router enough elements for the test
  testing::expect_starts(parameters_of("projection=shared_and_routed", {}, kTwice),
                         {{"w_q", truncated(scaled(kTwice))},
                          {"w_k", truncated(scaled(kTwice))},
                          {"w_v", truncated(scaled(kTwice))},
                          {"w_o", truncated(scaled(kHeads * kHead))},
                          {"select", normal(scaled(kTwice))},
                          {"select_shared", normal(scaled(kTwice))},
                          {"select_mix", normal(scaled(kTwice))}},
                         "shared and routed heads");
}

// Parameters are initialised as in routed heads; the fan-out of keys and values includes all groups.
TEST(Initialisation, RoutedQueries) {
  const std::string routed = "projection=routed_queries n_kv_heads=4";
  const Starts normals = {{"w_q", normal(scaled(kWidth))},
                          {"w_k", normal(scaled(kWidth))},
                          {"w_v", normal(scaled(kWidth))},
                          {"w_o", normal(scaled(4 * 2 * kHead))},
                          {"select", normal(scaled(kWidth))}};
  expect_layer(routed, normals);
  const double expert = std::sqrt(6.0 / (kWidth + kHead)), grouped = std::sqrt(3.0 / (kWidth + 4 * kHead));
  expect_layer(routed,
               {{"w_q", uniform(expert)},
                {"w_k", uniform(grouped)},
                {"w_v", uniform(grouped)},
                {"w_o", uniform(expert)},
                {"select", constant(0)}},
               {.rule = config::Initialisation::glorot});
}

// TPA's code uses Xavier's uniform law on [d, H, R] and [d, R, e] with the last axis as a kernel, and a zero output.
TEST(Initialisation, FactoredHeads) {
  const auto a = [](std::int64_t rank) {
    return uniform(std::sqrt(6.0 / static_cast<double>(rank * (kWidth + kHeads))));
  };
  const auto b = [](std::int64_t rank) {
    return uniform(std::sqrt(6.0 / static_cast<double>(kHead * (kWidth + rank))));
  };
  const Starts keys = {{"k.a", a(2)}, {"k.b", b(2)}, {"v.a", a(2)}, {"v.b", b(2)}, {"w_o", constant(0)}};
  expect_layer("projection=factored kv_rank=2 q_rank=3", keys + Starts{{"q.a", a(3)}, {"q.b", b(3)}});
  expect_layer("projection=factored kv_rank=2 q_rank=0", keys + Starts{{"w_q", truncated(scaled(kWidth))}});
}

TEST(Initialisation, TiedHeads) {
  expect_layer("projection=tied n_kv_heads=8 bias=true", {{"w_q", truncated(scaled(kWidth))},
                                                          {"w_k_rotary", truncated(scaled(kWidth))},
                                                          {"w_v", truncated(scaled(kWidth))},
                                                          {"w_o", truncated(scaled(kHeads * kHead))},
                                                          {"b_q", constant(0)},
                                                          {"b_k_rotary", constant(0)},
                                                          {"b_v", constant(0)},
                                                          {"b_o", constant(0)}});
}

// `scaled` is SwitchHead's rule. `glorot` follows MoA's code: Glorot's uniform law for each expert, divided by sqrt(2)
// for the shared head, and a zero router.
TEST(Initialisation, RoutedHeads) {
  const std::string routed =
      "projection=routed_heads gate=softmax_renormalised n_heads=2 top_k=2 position=relative position_bias=true "
      "noisy_routing=true bias=true";
  const Starts zeros = {{"b_q", constant(0)},          {"b_k", constant(0)}, {"b_v", constant(0)}, {"b_o", constant(0)},
                        {"select_noise", constant(0)}, {"u", constant(0)},   {"v", constant(0)}};
  expect_layer(routed, zeros + Starts{{"w_q", normal(scaled(kWidth))},
                                      {"w_k", normal(scaled(kWidth))},
                                      {"w_v", normal(scaled(kWidth))},
                                      {"w_o", normal(scaled(2 * kHead))},
                                      {"select", normal(scaled(kWidth))},
                                      {"w_pos", normal(scaled(kWidth))}});
  const double expert = std::sqrt(6.0 / (kWidth + kHead)), shared = expert / std::sqrt(2.0);
  expect_layer(routed,
               zeros + Starts{{"w_q", uniform(expert)},
                              {"w_k", uniform(shared)},
                              {"w_v", uniform(shared)},
                              {"w_o", uniform(expert)},
                              {"select", constant(0)},
                              {"w_pos", uniform(shared)}},
               {.rule = config::Initialisation::glorot});
}

// These rules apply to all matrices of a layer.
TEST(Initialisation, RulesOfWholeModels) {
  const std::string experts = "projection=experts bias=true";
  const auto layer = [](Start in, Start out, Start router, Start bias_in, Start bias_out) {
    return Starts{{"w_q", in},      {"w_k", in},      {"w_v", in},      {"w_o", out},      {"select_in", router},
                  {"b_q", bias_in}, {"b_k", bias_in}, {"b_v", bias_in}, {"b_o", bias_out}, {"select_out", router}};
  };
  const auto bound = [](double sum) { return std::sqrt(6.0 / sum); };
  const auto root = [](std::int64_t n) { return 1.0 / std::sqrt(static_cast<double>(n)); };
  const std::int64_t heads = kHeads * kHead;
  expect_layer(experts, layer(normal(0.07), normal(0.07), normal(0.07), constant(0), constant(0)),
               {.rule = config::Initialisation::normal, .std = 0.07});
  expect_layer(experts,
               layer(uniform(bound(kWidth + heads) / std::sqrt(2.0)), uniform(bound(kWidth + heads)),
                     uniform(bound(kWidth + kHeads * kExperts)), constant(0), constant(0)),
               {.rule = config::Initialisation::glorot});
  expect_layer(experts, layer(normal(0.07), normal(0.03), normal(0.07), constant(0), constant(0)),
               {.rule = config::Initialisation::pythia, .std = 0.07, .stream_std = 0.03});
  // b_o has 96 values with another bound, too few to test their law.
  Starts plain = layer(uniform(root(kWidth)), uniform(root(heads)), uniform(root(kWidth)), {}, {});
  std::erase_if(plain, [](const auto& entry) { return entry.first.starts_with("b_"); });
  expect_layer("projection=experts", plain, {.rule = config::Initialisation::torch});
  const Initialisation torch{.rule = config::Initialisation::torch};
  EXPECT_EQ(torch.bias({}, 16)->law, nn::Distribution::Law::uniform);
  EXPECT_DOUBLE_EQ(torch.bias({}, 16)->scale, 0.25);
  EXPECT_DOUBLE_EQ(torch.embedding({}, 16).scale, 1.0);
  EXPECT_FALSE(
      Initialisation{.rule = config::Initialisation::glorot}.bias(nn::Distribution::uniform(1.0), 16).has_value());
}

// Maps are initialised as in DCMHA; q, k, v and o as in a dense or expert layer without maps.
TEST(Initialisation, ComposedLayers) {
  const double fixed = 0.1 / std::sqrt(static_cast<double>(kHeads));
  expect_layer("composition=static",
               projections(truncated) + Starts{{"pre.wb", normal(fixed)}, {"post.wb", normal(fixed)}});
  const auto alone = normal(glorot(kHeads, kHeads));
  expect_layer("composition=static compose_skip=false",
               projections(truncated) + Starts{{"pre.wb", alone}, {"post.wb", alone}});
  constexpr std::int64_t kRank = 2;
  for (const std::int64_t groups : {1, 2}) {
    const std::string composed = fmt::format("composition=dynamic compose_rank={} compose_groups={}", kRank, groups);
    const std::int64_t hidden = 2 * kRank * kHeads / groups;
    const double spread = std::sqrt(2.0 * kHeads * kRank) * (kHeads + kRank);
    Starts maps;
    for (const std::string side : {"pre.q.", "pre.k.", "post.q.", "post.k."}) {
      maps[side + "w1"] = normal(glorot(kWidth, hidden));
      maps[side + "w2"] = normal(0.02 / spread);
      maps[side + "wg"] = normal(0.05 * glorot(kWidth, kHeads));
    }
    expect_layer(composed, projections(truncated) + maps);
    expect_layer(composed + " projection=experts",
                 projections(normal) + maps +
                     Starts{{"select_in", normal(scaled(kWidth))}, {"select_out", normal(scaled(kWidth))}});
  }
}

TEST(Initialisation, MixturesOfKeys) {
  for (const char* prior : {"layer", "head", "head_position"}) {
    for (const char* update : {"gradient", "soft_e"}) {
      expect_layer(fmt::format("score=gaussian_mixture n_mixtures=3 prior={} prior_update={}", prior, update),
                   projections(truncated) + Starts{{"prior", constant(1.0 / 3)}});
    }
  }
  for (const char* score : {"gaussian_mixture", "linear"}) {
    const Parameters parameters =
        parameters_of(fmt::format("score={} n_mixtures=3 keys=shifted shift_std=0.5 prior=none", score));
    const at::Tensor shift = parameters.at("shift");  // [R, H, e]: the first key is the projection itself
    testing::expect_start("shift 0", shift[0], constant(0));
    testing::expect_start("shifts 1 and 2", shift.narrow(0, 1, 2), normal(0.5));
    testing::expect_start("w_k", parameters.at("w_k"), truncated(scaled(kWidth)));
  }
}

TEST(Initialisation, GatedDelta) {
  const Parameters parameters = parameters_of("score=gated_delta");
  const at::Tensor rate = parameters.at("a_log").exp();  // uniform in (0.01, 16)
  EXPECT_GE(rate.min().item<double>(), 0.01);
  EXPECT_LE(rate.max().item<double>(), 16.0);
  EXPECT_NEAR(rate.mean().item<double>(), 8.0, 4.0 * 4.6 / std::sqrt(kHeads));
  Starts expected = projections(truncated);
  expected.merge(Starts{{"conv_q", uniform(0.5)},
                        {"conv_k", uniform(0.5)},
                        {"conv_v", uniform(0.5)},
                        {"w_beta", truncated(scaled(kWidth))},
                        {"w_decay", truncated(scaled(kWidth))},
                        {"w_z", truncated(scaled(kWidth))},
                        {"dt_bias", constant(1)},
                        {"o_norm", constant(1)}});
  for (const auto& [name, start] : expected) {
    testing::expect_start(name, parameters.at(name), start);
  }
}

TEST(Initialisation, Mlps) {
  const auto expect_mlp = [](const config::MlpOptions& o, const Starts& expected, const std::string& what) {
    Parameters parameters;
    const auto mlp =
        make_mlp(o, {.d_model = kWidth, .n_layers = kLayers}, Builder(parameters, ParameterSource(1, at::kFloat)));
    testing::expect_starts(parameters, expected, what);
  };
  config::MlpOptions o;
  o.d_hidden = 64;
  const Starts two = {{"w_up", truncated(scaled(kWidth))},
                      {"b_up", constant(0)},
                      {"w_down", truncated(scaled(64))},
                      {"b_down", constant(0)}};
  expect_mlp(o, two, "dense");
  o.kind = config::MlpKind::gated;
  expect_mlp(o, two + Starts{{"w_gate", truncated(scaled(kWidth))}, {"b_gate", constant(0)}}, "gated");
  o.kind = config::MlpKind::experts;
  o.n_experts = 16;
  expect_mlp(o,
             {{"select", normal(scaled(kWidth))},
              {"w_up", normal(scaled(kWidth))},
              {"w_down", normal(scaled(o.n_experts * o.d_hidden))}},
             "experts");
}

TEST(Initialisation, Norms) {
  for (const config::Norm kind : {config::Norm::layer, config::Norm::rms}) {
    Parameters parameters;
    const NormLayer norm(kind, 1e-5, kWidth, Builder(parameters, ParameterSource(1, at::kFloat)));
    Starts expected = {{"scale", constant(1)}};
    if (kind == config::Norm::layer) {
      expected["bias"] = constant(0);
    }
    testing::expect_starts(parameters, expected, "norm");
  }
}

}  // namespace headroom::nn::initialisation_test
