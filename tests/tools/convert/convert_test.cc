// Converts a tiny dense model: exact conversions reproduce its outputs, others are fitted, and bad input is refused.

#include "conversion.h"
#include "headroom/config/part_options.h"
#include "tools/convert/fit.h"
#include "tools/convert/start.h"

namespace headroom::convert::convert_test {

TEST_F(ConvertTest, ComposedAndGatedHeadsStartExactly) {
  train(dense("bias=true"));
  const at::Tensor expected = logits((folder_ / "dense").string());
  const std::string exact[] = {
      "composition=dynamic", "composition=dynamic compose_static=true compose_skip=false",
      "composition=static",  "gate_output=head",
      "gate_output=element", "",
  };
  for (const auto& change : exact) {
    const Conversion made = convert(request(change));
    EXPECT_TRUE(made.exact);
    EXPECT_FALSE(made.together);
    EXPECT_NEAR(made.loss_after, made.loss_before, 1e-5);
    EXPECT_LT((logits((folder_ / "converted.safetensors").string()) - expected).abs().max().item<double>(), 1e-4);
  }
}

TEST_F(ConvertTest, FormulasThatAreTheProductAtTheStartAreExact) {
  train(dense());
  const at::Tensor expected = logits((folder_ / "dense").string());
  const auto converted = [&](const std::string& formula, const std::string& learned, const std::string& mask = "") {
    ConvertRequest r = request("");
    auto& o = r.target.model.attention.of<config::DotOptions>();
    o.formula = formula;
    o.learned = learned;
    o.mask = mask;
    return convert(r);
  };
  const std::pair<const char*, const char*> exact[] = {
      {"s", ""},
      {"s - slope * (i - j)", R"(slope = {shape = "head"})"},
      {"factor * s + near[h, i - j]",
       R"(factor = {shape = "head", start = 1}, near = {shape = "head, distance", size = 9})"},
      {"where(gate > 0, tanh(s), s)", R"(gate = {shape = "head"})"},
      {"s + a * decay(j)", R"(a = {shape = "head"}, decay = {shape = "token, head"})"}};
  for (const auto& [formula, learned] : exact) {
    const Conversion made = converted(formula, learned);
    EXPECT_TRUE(made.exact) << formula;
    EXPECT_NEAR(made.loss_after, made.loss_before, 1e-5) << formula;
    EXPECT_LT((logits((folder_ / "converted.safetensors").string()) - expected).abs().max().item<double>(), 1e-4)
        << formula;
  }
  EXPECT_FALSE(converted("tanh(s)", "").exact);
  EXPECT_FALSE(converted("s - slope * (i - j)", R"(slope = {shape = "head", start = 0.1})").exact);
  EXPECT_FALSE(converted("s", "", "i - j < 3").exact);
}

// The result has the source's score factor and norms of queries and keys, whatever the target's config says.
TEST_F(ConvertTest, ScoresKeepTheirScale) {
  const std::string sources[] = {
      "scale=learned",
      "scale_width=1.5",
      "qk_norm=true qk_norm_epsilon=0.5",
  };
  for (const auto& change : sources) {
    train(dense(change));
    const Conversion made = convert(request("composition=dynamic"));
    EXPECT_TRUE(made.exact);
    EXPECT_NEAR(made.loss_after, made.loss_before, 1e-5);
    fs::remove_all(folder_ / "dense");
  }
}

TEST_F(ConvertTest, KeysMayBeGroupedOrUngrouped) {
  train(dense("n_kv_heads=2"));
  ConvertRequest all = request("");
  all.fit_steps = 1;
  for (const LayerError& layer : convert(all).layers) {
    EXPECT_LT(layer.start, 1e-6) << "every head has the keys of its group";
  }
  fs::remove(all.out);
  expect_refused(request("n_kv_heads=3"), "n_kv_heads");
  expect_refused(request("n_heads=2 n_kv_heads=1"), "n_kv_heads");
}

// A head keeps its forget gates.
TEST_F(ConvertTest, ForgetGatesAreKept) {
  train(dense("position=forgetting"));
  const auto forgetting = [&](const std::string& change) { return convert(request("position=forgetting " + change)); };
  const Conversion composed = forgetting("composition=static");
  EXPECT_TRUE(composed.exact);
  EXPECT_NEAR(composed.loss_after, composed.loss_before, 1e-5);
  const Conversion fewer = forgetting("n_heads=2");
  EXPECT_FALSE(fewer.exact);
  EXPECT_LT(fewer.loss_after, 5.0);
  const Conversion exclusive = forgetting("exclusive=true");
  EXPECT_FALSE(exclusive.exact);
}

// A head keeps its sinks.
TEST_F(ConvertTest, SinksAreKept) {
  train(dense("sink=true"));
  const auto sinks = [&] { return store::read_checkpoint(folder_ / "converted.safetensors").tensors; };
  const at::Tensor before = store::read_checkpoint(store::find_checkpoint((folder_ / "dense").string()))
                                .tensors.at("model.layer0.attention.sink");
  const Conversion same = convert(request("sink=true"));
  EXPECT_TRUE(same.exact);
  EXPECT_NEAR(same.loss_after, same.loss_before, 1e-5);
  EXPECT_TRUE(sinks().at("model.layer0.attention.sink").equal(before));
  ConvertRequest fewer = request("sink=true n_heads=2");
  fewer.fit_steps = fewer.joint_steps = 0;
  convert(fewer);
  for (const at::Tensor& sink : sinks().at("model.layer0.attention.sink").unbind()) {
    EXPECT_TRUE((before == sink).any().item<bool>()) << sink.item<float>();
  }
}

// Latents may be narrower or wider than the source's keys and values, and positions may rotate nothing.
TEST_F(ConvertTest, LatentsOfAnySizeStart) {
  for (const char* position : {"learned", "rope"}) {
    fs::remove_all(folder_ / "dense");
    train(dense(fmt::format("position={}", position)));
    for (const std::int64_t rank : {6, 50}) {
      const Conversion made =
          convert(request(fmt::format("position={0} projection=latent kv_rank={1} q_rank={1}", position, rank)));
      EXPECT_LT(made.loss_after, 6.0) << position << " " << rank;
    }
  }
}

TEST_F(ConvertTest, TextMayBeGivenForAMixture) {
  config::Config source = dense();
  source.data.train.push_back(source.data.train.front());
  source.data.mixture = {3.0, 1.0};
  train(source);
  ConvertRequest given = request("n_heads=2");
  given.target.data = {};
  given.data = {text()};
  EXPECT_LT(convert(given).loss_after, 6.0);
}

TEST_F(ConvertTest, FewerHeadsAreFittedAndTheSameCommandGivesTheSameBytes) {
  train(dense());
  const std::string targets[] = {
      "sink=true",
      "projection=experts n_heads=2 d_head=8 n_experts=2 top_k=1",
      "n_heads=2",
      "n_kv_heads=2",
      "score=gaussian_mixture n_heads=2 mixture_score=dot",
      "projection=gated_heads top_k=2",
      "projection=shared_and_routed shared_heads=1 top_k=2",
      // The width differs from the source's, and all rotary channels rotate.
      "projection=latent d_head=8 kv_rank=6",
      "projection=tied d_head=8 n_kv_heads=2",
      "projection=factored d_head=8 kv_rank=2",
  };
  for (const auto& change : targets) {
    const Conversion made = convert(request(change));
    ASSERT_EQ(made.layers.size(), 2U);
    for (const LayerError& layer : made.layers) {
      EXPECT_LE(layer.fitted, layer.start);
      EXPECT_LT(layer.fitted, 1.0);
    }
    ASSERT_TRUE(made.together);
    EXPECT_LE(made.together->fitted, made.together->start);
    const std::string first = read_text_file(folder_ / "converted.safetensors");
    convert(request(change));
    EXPECT_EQ(read_text_file(folder_ / "converted.safetensors"), first);
  }
}

TEST_F(ConvertTest, FittingAllLayersTogetherBringsThePredictionsCloser) {
  train(dense());
  ConvertRequest r = request("n_heads=1");
  r.joint_steps = 0;
  const Conversion layers = convert(r);
  EXPECT_FALSE(layers.together);
  r.joint_steps = 60;
  const Conversion together = convert(r);
  ASSERT_TRUE(together.together);
  EXPECT_LT(together.together->fitted, 0.9 * together.together->start);
  EXPECT_LT(together.loss_after, layers.loss_after);
  for (std::size_t i = 0; i < layers.layers.size(); ++i) {
    EXPECT_EQ(together.layers[i].fitted, layers.layers[i].fitted);
  }
}

TEST_F(ConvertTest, ConvertsTheNamedLayersOnly) {
  train(dense());
  ConvertRequest r = request("n_heads=2");
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

// Layers 0 and 1 have heads of different kinds in the source, in the target, or in both.
TEST_F(ConvertTest, LayersMayDiffer) {
  const auto layers = [](const std::string& first, const std::string& second) {
    const auto entry = [](const std::string& projection) {
      config::LayerOptions::Keys keys = {{"projection", '"' + projection + '"'}};
      if (projection == "experts") {
        keys.insert({{"n_heads", "2"}, {"d_head", "8"}, {"n_experts", "2"}, {"top_k", "1"}});
      }
      return config::LayerOptions{.repeat = 1, .attention = keys, .mlp = {}};
    };
    return std::vector<config::LayerOptions>{entry(first), entry(second)};
  };
  config::Config source = dense();
  source.model.layers = layers("dense", "experts");
  train(source);
  const auto converted = [&](const std::vector<config::LayerOptions>& to, const auto& change) {
    ConvertRequest r = request(change);
    r.target.model.layers = to;
    return convert(r);
  };
  const auto nothing = "";
  const at::Tensor expected = logits((folder_ / "dense").string());
  const auto difference = [&] {
    return (logits((folder_ / "converted.safetensors").string()) - expected).abs().max().item<double>();
  };
  EXPECT_TRUE(converted(source.model.layers, nothing).exact);
  EXPECT_EQ(difference(), 0.0);
  // Gates and compositions start as the identity on heads of any kind.
  EXPECT_TRUE(converted(source.model.layers, "gate_output=head").exact);
  EXPECT_LT(difference(), 1e-4);
  EXPECT_TRUE(converted(source.model.layers, "composition=dynamic").exact);
  EXPECT_LT(difference(), 1e-4);
  // SwitchHead layers become dense layers and the reverse.
  for (const char* second : {"experts", "dense"}) {
    std::vector<config::LayerOptions> narrow = layers("experts", second);
    narrow[1].attention.insert({{"n_heads", "2"}, {"d_head", "8"}});
    const Conversion made = converted(narrow, nothing);
    EXPECT_FALSE(made.exact);
    EXPECT_EQ(made.layers.size(), second == std::string("experts") ? 1U : 2U);
    EXPECT_LT(made.loss_after, made.loss_before + 1.0);
    EXPECT_EQ(store::read_checkpoint(folder_ / "converted.safetensors").config.model.of_layer(0).attention.n_heads, 2);
  }
}

TEST_F(ConvertTest, AllLayersMayLoseTheirAttention) {
  train(dense());
  const Conversion made = convert(request("n_heads=0"));
  EXPECT_FALSE(made.exact);
  EXPECT_TRUE(made.layers.empty());
  const store::Checkpoint result = store::read_checkpoint(folder_ / "converted.safetensors");
  EXPECT_EQ(result.config.model.attention.n_heads, 0);
  EXPECT_TRUE(result.tensors.contains("model.layer1.ffn.w_up"));
  EXPECT_FALSE(result.tensors.contains("model.layer1.attention.w_q"));
  EXPECT_GT(made.loss_after, made.loss_before);
  EXPECT_LT(made.loss_after, 6.0);
}

TEST_F(ConvertTest, LayersMayShareKeys) {
  config::Config source = dense();
  source.model.n_layers = 3;
  train(source);
  const auto shared = [&](const char* keys) {
    ConvertRequest r = request("n_kv_heads=2");
    r.target.model.n_layers = 3;
    r.target.model.layers = {{.repeat = 2, .attention = {}, .mlp = {}},
                             {.repeat = 1, .attention = {{"share_kv", keys}}, .mlp = {}}};
    return r;
  };
  const Conversion made = convert(shared("1"));
  ASSERT_EQ(made.layers.size(), 2U);
  EXPECT_LT(made.layers[0].start, 0.4) << "each key is the best one for two heads; their mean leaves 0.63";
  EXPECT_EQ(made.layers[1].layer, "layer1+2.attention");
  EXPECT_LT(made.layers[1].start, 0.9) << "both layers start from their own heads";
  EXPECT_LE(made.layers[1].fitted, made.layers[1].start);
  EXPECT_LT(made.loss_after, made.loss_before + 1.0);
  const std::string bytes = read_text_file(folder_ / "converted.safetensors");
  EXPECT_FALSE(
      store::read_checkpoint(folder_ / "converted.safetensors").tensors.contains("model.layer2.attention.w_k"));
  convert(shared("1"));
  EXPECT_EQ(read_text_file(folder_ / "converted.safetensors"), bytes);
  // The result can be converted again: layers that share keys stay as they are, other layers may change.
  ConvertRequest again = shared("1");
  again.source = (folder_ / "shared.safetensors").string();
  fs::rename(folder_ / "converted.safetensors", again.source);
  const at::Tensor expected = logits(again.source);
  EXPECT_TRUE(convert(again).exact);
  EXPECT_TRUE(logits(again.out.string()).equal(expected));
  again.target.model.layers = {{.repeat = 1, .attention = {{"n_kv_heads", "1"}}, .mlp = {}},
                               {.repeat = 1, .attention = {}, .mlp = {}},
                               {.repeat = 1, .attention = {{"share_kv", "1"}}, .mlp = {}}};
  EXPECT_EQ(convert(again).layers.size(), 1U);
  fs::remove(again.out);
  again.target.model.layers.back().attention["share_kv"] = "0";
  expect_refused(again, "shares keys and values");
}

// Rotates channels (i, i + c/2) of [n, H, c] by an angle per pair.
at::Tensor rotated(const at::Tensor& x, const at::Tensor& angles) {
  const std::int64_t half = x.size(2) / 2;
  const at::Tensor a = x.narrow(2, 0, half), b = x.narrow(2, half, half), c = angles.cos(), s = angles.sin();
  return at::cat({a * c - b * s, a * s + b * c}, 2);
}

// The second layer reads the first layer's input through a matrix. Its heads have the first layer's keys, rotated and
// scaled, and the first layer's values.
TEST(SharedStartTest, HeadsThatCanShareKeysKeepTheirScoresAndOutputs) {
  const std::int64_t n = 200, d = 8, heads = 4, e = 4;
  const at::Tensor x = random_tensor({n, d}, 1), map = random_tensor({d, d}, 2);
  const at::Tensor inverse = at::linalg_inv(map), angles = random_tensor({heads, e / 2}, 3);
  const auto reads = [&](const at::Tensor& w) { return at::einsum("cd,dhe->che", {inverse, w}); };
  nn::Parameters source, target;
  const auto add = [&](const std::string& name, const at::Tensor& value) {
    source.add(name, value);
    target.add(name, at::zeros_like(value));
  };
  const at::Tensor k = random_tensor({d, heads, e}, 4), v = random_tensor({d, heads, e}, 5);
  add("0.w_q", random_tensor({d, heads, e}, 6));
  add("1.w_q", random_tensor({d, heads, e}, 7));
  add("0.w_k", k);
  add("0.w_v", v);
  source.add("1.w_k", reads(rotated(k, angles) * 0.5));
  source.add("1.w_v", reads(v));
  add("0.w_o", random_tensor({heads, e, d}, 8));
  add("1.w_o", random_tensor({heads, e, d}, 9));
  config::AttentionOptions options;
  options.n_heads = heads;
  options.d_head = e;
  options.position = "rope";
  const at::Tensor second = at::mm(x, map);
  start_shared({{.place = "0", .source = x}, {.place = "1", .source = second}}, options, source, target);
  const at::Tensor positions = random_tensor({e / 2}, 10);
  const auto result = [&](const nn::Parameters& of, const std::string& layer, const std::string& keys,
                          const at::Tensor& own, const at::Tensor& read) {
    const at::Tensor q = rotated(at::einsum("nd,dhc->nhc", {own, of.at(layer + ".w_q")}), positions);
    const at::Tensor scores = at::einsum("ihc,jhc->hij", {q, at::einsum("nd,dhc->nhc", {read, of.at(keys + ".w_k")})});
    const at::Tensor values = at::einsum("nd,dhc,hcf->hnf", {read, of.at(keys + ".w_v"), of.at(layer + ".w_o")});
    return at::matmul(scores, values).sum(0);
  };
  const auto expect_close = [](const at::Tensor& is, const at::Tensor& wanted) {
    EXPECT_LT(((is - wanted).norm() / wanted.norm()).item<double>(), 0.02);
  };
  expect_close(result(target, "0", "0", x, x), result(source, "0", "0", x, x));
  expect_close(result(target, "1", "0", second, x), result(source, "1", "1", second, second));
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
  const auto error_of = [&](const std::string& change) {
    ConvertRequest r = request(change);
    r.fit_steps = 1;  // the errors of the starting values are reported
    const Conversion made = convert(r);
    double sum = 0.0;
    for (const LayerError& layer : made.layers) {
      sum += layer.start;
    }
    return sum / 2.0;
  };
  const std::string latent = "projection=latent d_rotary=4 kv_rank=";
  const double wide = error_of(latent + "24"), narrow = error_of(latent + "4");
  EXPECT_LT(wide, 0.5);
  EXPECT_LT(wide, narrow);
  EXPECT_LT(error_of("projection=routed_heads n_experts=4 top_k=4"), 1.0);
  EXPECT_NEAR(error_of(latent + "24 gate_output=head"), wide, 1e-4)
      << "the outputs are doubled, because the gates start at a half";
}

TEST_F(ConvertTest, RefusesWhatCannotBeConverted) {
  train(dense());
  ConvertRequest wide = request("");
  wide.target.model.d_model = 48;
  expect_refused(wide, "d_model");
  expect_refused(request("position=none"), "position");
  ConvertRequest words = request("");
  words.target.tokenizer.kind = config::TokenizerKind::words;
  words.target.given["tokenizer.kind"] = "words";
  expect_refused(words, "tokenizer.kind");
  ConvertRequest hungry = request("n_heads=2");
  hungry.tokens = 1 << 20;
  expect_refused(hungry, "--tokens");
  expect_refused(request("n_heads=8"), "8 heads");
  expect_refused(request("n_heads=2 d_head=26"), "d_head");
}

}  // namespace headroom::convert::convert_test
