// Decodes the page's packed arrays by their documented layout and compares them with the model's values.
#include "tools/analyse/inspector/inspector.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstring>
#include <random>

#include "engine/nn/combinations.h"
#include "headroom/models/classifier.h"
#include "headroom/models/language_model.h"
#include "tools/analyse/inspector/attribution.h"
#include "tools/analyse/inspector/packing.h"
#include "tools/analyse/small_model.h"

namespace headroom::inspector::inspector_test {

std::string inflated(const std::string& packed) {
  std::string bytes(1 << 24, '\0');
  uLongf size = bytes.size();
  EXPECT_EQ(uncompress(reinterpret_cast<Bytef*>(bytes.data()), &size, reinterpret_cast<const Bytef*>(packed.data()),
                       packed.size()),
            Z_OK);
  bytes.resize(size);
  return bytes;
}

// Reads consecutive fields.
struct Fields {
  std::string bytes;
  std::size_t at = 0;

  at::Tensor take(at::ScalarType type, const std::vector<std::int64_t>& shape) {
    at::Tensor numbers = at::empty(shape, type);
    const std::size_t size = numbers.nbytes();
    EXPECT_LE(at + size, bytes.size());
    std::memcpy(numbers.mutable_data_ptr(), bytes.data() + at, size);
    at += size;
    return numbers.is_floating_point() ? numbers.to(at::kDouble) : numbers.to(at::kLong);
  }
  std::int64_t number() { return take(at::kInt, {1}).item<std::int64_t>(); }
  bool ended() const { return at == bytes.size(); }
};

// Decodes a map in the way that the page does.
at::Tensor unpacked_map(const std::string& packed, std::int64_t t, bool causal = true) {
  const std::int64_t after = causal ? 0 : t;
  Fields fields{inflated(packed)};
  std::int64_t levels = fields.number();
  fields.take(at::kFloat, {1});  // the value at which shades end
  const at::Tensor scale = fields.take(at::kFloat, {t, 1});
  at::Tensor map = at::zeros({t, t}, at::kDouble);
  const auto value = [](const at::Tensor& n, std::int64_t of) {
    const at::Tensor root = n.to(at::kDouble) / static_cast<double>(of);
    return root * root.abs();
  };
  if (levels > 0) {
    const at::Tensor seen = at::ones({t, t}, at::kBool).tril(after);
    const auto count = seen.sum().item<std::int64_t>();
    at::Tensor n;
    if (levels > 127) {
      n = fields.take(at::kByte, {count});
      n = n + fields.take(at::kChar, {count}) * 256;
    } else {
      n = fields.take(at::kChar, {count});
    }
    map = map.masked_scatter(seen, value(n, levels)) * scale;
  } else {
    const std::int64_t k = fields.number();
    std::vector<std::int64_t> counts;
    std::int64_t all = 0;
    for (std::int64_t i = 0; i < t; ++i) {
      counts.push_back(std::min(k, causal ? i + 1 : t));
      all += counts.back();
    }
    const at::Tensor steps = fields.take(at::kShort, {all});
    const at::Tensor peaks = value(fields.take(at::kChar, {all}), 127);
    const std::int64_t side = fields.number(), squares = (t + side - 1) / side;
    const at::Tensor most = fields.take(at::kFloat, {1});
    const at::Tensor means = value(fields.take(at::kChar, {squares, squares}), 127) * most;
    map = means.repeat_interleave(side, 0).repeat_interleave(side, 1).narrow(0, 0, t).narrow(1, 0, t).tril(after);
    for (std::int64_t i = 0, at = 0; i < t; ++i) {
      for (std::int64_t c = 0, j = 0; c < counts[static_cast<std::size_t>(i)]; ++c, ++at) {
        j += steps[at].item<std::int64_t>();
        map[i][j] = peaks[at] * scale[i][0];
      }
    }
  }
  EXPECT_TRUE(fields.ended());
  return map;
}

at::Tensor some_map(std::int64_t t, bool with_signs) {
  at::manual_seed(7);
  const at::Tensor future = at::ones({t, t}, at::kBool).triu(1);
  at::Tensor map = (at::randn({t, t}, at::kFloat) * 2.0).masked_fill(future, -INFINITY).softmax(-1);
  return with_signs ? map * at::randn({t, t}, at::kFloat).sign() : map;
}

TEST(InspectorMaps, ErrorIsBoundedByTheLevels) {
  for (const bool with_signs : {false, true}) {
    const at::Tensor map = some_map(70, with_signs), scale = map.abs().amax(1, true);
    for (const std::int64_t bytes : {100'000, 2'300, 1'900}) {
      const std::string packed = pack_map(map, bytes);
      const auto levels = static_cast<double>(Fields{inflated(packed)}.number());
      ASSERT_GT(levels, 0.0);
      EXPECT_LE(std::ssize(packed), bytes);
      EXPECT_EQ(levels == 32767.0, bytes == 100'000);
      // Roots are packed. The bound is half a step of the root, where its square is steepest.
      const at::Tensor error = (unpacked_map(packed, 70) - map).abs() / scale;
      EXPECT_LE(error.max().item<double>(), 1.001 * (1.0 + 0.25 / levels) / levels) << levels;
    }
  }
}

TEST(InspectorMaps, LargeMapsKeepTheLargestValuesAndMeansOfTheOthers) {
  constexpr std::int64_t kT = 200, kBytes = 4'000;
  const at::Tensor map = some_map(kT, false);
  const std::string packed = pack_map(map, kBytes);
  Fields fields{inflated(packed)};
  ASSERT_EQ(fields.number(), 0);
  EXPECT_LE(std::ssize(packed), kBytes * 3 / 2);
  EXPECT_NEAR(fields.take(at::kFloat, {1}).item<double>(), analyse::shade_end(map).item<double>(), 1e-6);
  fields.take(at::kFloat, {kT});
  const std::int64_t k = fields.number();
  ASSERT_GE(k, 5);
  const at::Tensor back = unpacked_map(packed, kT);
  const auto [largest, places] = map.narrow(0, 20, kT - 20).topk(k, -1);
  const at::Tensor step = map.amax(1, true).narrow(0, 20, kT - 20) / 126.0;
  EXPECT_LE(((back.narrow(0, 20, kT - 20).gather(1, places) - largest).abs() / step).max().item<double>(), 1.0);
  // In a square below the diagonal, values that are not among the largest are replaced by their mean.
  const at::Tensor square = back.narrow(0, 160, 16).narrow(1, 32, 16), own = map.narrow(0, 160, 16).narrow(1, 32, 16);
  const at::Tensor rest = square.eq(std::get<0>(square.flatten().mode()));
  EXPECT_GT(rest.sum().item<std::int64_t>(), 200);
  const double mean = own.masked_select(rest).mean().item<double>();
  EXPECT_NEAR(square.masked_select(rest)[0].item<double>(), mean, 0.05 * mean);
  EXPECT_LE(std::ssize(pack_map(at::zeros({kT, kT}), 400)), 400);
}

TEST(InspectorMaps, BidirectionalMapsAreStoredWhole) {
  constexpr std::int64_t kT = 70;
  at::manual_seed(7);
  const at::Tensor map = (at::randn({kT, kT}, at::kFloat) * 2.0).softmax(-1);
  EXPECT_LE((unpacked_map(pack_map(map, 100'000, false), kT, false) - map).abs().max().item<double>(), 1e-4);
  const std::string packed = pack_map(map, 1'500, false);
  ASSERT_EQ(Fields{inflated(packed)}.number(), 0) << "only the largest";
  const auto [largest, places] = map.topk(3, -1);
  const at::Tensor error = (unpacked_map(packed, kT, false).gather(1, places) - largest).abs() / map.amax(1, true);
  EXPECT_LE(error.max().item<double>(), 1.0 / 126.0);
}

std::vector<std::int32_t> inspected_ids() {
  std::vector<std::int32_t> ids;
  for (std::int32_t i = 0; i < 24; ++i) {
    ids.push_back((7 * i + i * i) % 40);
  }
  return ids;
}

at::Tensor row_of(const std::vector<std::int32_t>& ids) {
  return at::tensor(ids, at::kInt).to(at::kLong).unsqueeze(0);
}

std::vector<std::pair<std::string, config::ModelOptions>> inspected_models() {
  std::vector<std::pair<std::string, config::ModelOptions>> all;
  for (const auto& [name, keys] : {
           std::pair("dense", "norm=layer"),
           {"experts", "attention.projection=experts attention.bias=true"},
           {"routed heads", "attention.projection=routed_heads"},
           {"routed queries",
            "attention.projection=routed_queries attention.n_heads=6 attention.n_kv_heads=2 attention.bias=true"},
           {"repeated layers", "n_groups=1"},
           {"groups of heads",
            "attention.projection=routed_heads attention.n_heads=4 attention.n_kv_heads=2 attention.bias=true "
            "attention.output_bias=true"},
           {"shared and routed heads", "attention.projection=shared_and_routed attention.n_heads=4"},
           {"composed", "attention.composition=dynamic tied_embeddings=true"},
           {"mixture", "attention.score=gaussian_mixture"},
           {"linear", "attention.score=linear"},
           {"norms after", "norm_position=post"},
           {"window", "attention.window=5"},
           {"layers", R"(attention.window=5 layers=[{},{attention={window=0},mlp={kind="gated"}}])"},
           {"output norms", "output_norms=true"},
           {"mixed layers",
            R"(layers=[{attention={score="linear",n_heads=1}},{attention={projection="experts",n_heads=3,n_experts=3,)"
            R"(top_k=2},mlp={kind="gated"}}])"},
       }) {
    all.emplace_back(name, tiny::changed(analyse::small::two_layers(40, 24), "", keys));
  }
  return all;
}

Fields field(const Inspection& text, const std::string& name) {
  const auto found =
      std::find_if(text.packed.begin(), text.packed.end(), [&](const PackedArray& p) { return p.name == name; });
  if (found == text.packed.end()) {
    fail("no packed array {}", name);
  }
  return {inflated(found->bytes)};
}

TEST(Inspector, ContributionsAndLogitsMatchTheModel) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, options] : inspected_models()) {
    const models::LanguageModel model(options, 5);
    const std::vector<std::int32_t> ids = inspected_ids();
    const std::int64_t t = std::ssize(ids);
    const Inspection text = inspect_text(model, ids, {});
    std::int64_t all_heads = 0;
    for (std::int64_t l = 0; l < 2; ++l) {
      const Json& layer = text.about["layers"][static_cast<std::size_t>(l)];
      const std::int64_t heads = layer["heads"];
      all_heads += heads;
      EXPECT_EQ(heads, options.of_layer(l).attention.computed_heads()) << name;
      EXPECT_EQ(layer["parts"]["score"], options.of_layer(l).attention.score.name()) << name;
      const std::int64_t n = layer["contributions"];
      Fields fields = field(text, fmt::format("contributions.{}", l));
      const at::Tensor source = fields.take(at::kShort, {t, n});
      fields.take(at::kShort, {3, t, n});
      const at::Tensor size = fields.take(at::kHalf, {t, n});
      for (const Json& split : layer["splits"]) {
        const at::Tensor terms = fields.take(at::kHalf, {t, n, std::ssize(split["terms"])});
        EXPECT_LE((terms.sum(-1) - size).abs().max().item<double>(), 5e-3 * (1.0 + terms.abs().max().item<double>()))
            << name;
      }
      EXPECT_TRUE(source.le(at::arange(t).unsqueeze(1)).logical_or(size.eq(0.0)).all().item<bool>()) << name;
      const at::Tensor length = fields.take(at::kFloat, {t}), residual = fields.take(at::kFloat, {t});
      const at::Tensor bias = fields.take(at::kFloat, {t}), others = fields.take(at::kFloat, {t});
      const at::Tensor by_head = fields.take(at::kFloat, {t, heads});
      EXPECT_GT(length.min().item<double>(), 0.0) << name;
      EXPECT_LE(residual.max().item<double>(), 1e-5) << name;
      EXPECT_LE((size.sum(-1) + others + bias - 1.0).abs().max().item<double>(), 1e-2) << name;
      EXPECT_LE((by_head.sum(-1) + bias - 1.0).abs().max().item<double>(), 1e-4) << name;
      for (const Json& split : layer["splits"]) {
        const at::Tensor totals = fields.take(at::kFloat, {t, std::ssize(split["terms"])});
        EXPECT_LE((totals.sum(-1) - by_head.sum(-1)).abs().max().item<double>(), 1e-3) << name;
      }
      const std::int64_t n_scores = std::ssize(layer["score_terms"]);
      EXPECT_EQ(n_scores > 0, name == "composed");
      if (n_scores > 0) {
        const at::Tensor scores = fields.take(at::kHalf, {t, n, n_scores});
        EXPECT_GT(scores.abs().max().item<double>(), 0.0);
      }
      EXPECT_TRUE(fields.ended()) << name;
    }
    models::Memory memory;
    const at::Tensor tokens = row_of(ids);
    const at::Tensor logits = model.logits(tokens, memory, {})[0].to(at::kDouble);
    const std::int64_t k = text.about["likeliest"];
    Fields predictions = field(text, "predictions");
    const at::Tensor likeliest = predictions.take(at::kInt, {t, k}), p = predictions.take(at::kFloat, {t, k});
    EXPECT_LE((p - logits.softmax(-1).gather(1, likeliest)).abs().max().item<double>(), 1e-5) << name;
    EXPECT_TRUE(likeliest.select(1, 0).equal(logits.argmax(-1))) << name;
    EXPECT_EQ(text.about["logits"], name != "norms after" && name != "output norms");
    const std::int64_t side = text.about["thumbnail"];
    Fields thumbnails = field(text, "thumbnails");
    thumbnails.take(at::kByte, {all_heads, side, side});
    EXPECT_TRUE(thumbnails.ended()) << name;
    if (text.about["logits"]) {
      const std::int64_t width = 3 + all_heads + 2 * 2;
      const at::Tensor table = field(text, "logits").take(at::kFloat, {2, t, width});
      const at::Tensor next = at::cat({tokens[0].slice(0, 1), likeliest[t - 1].slice(0, 0, 1)});
      EXPECT_LE((table[0].select(1, 0) - logits.gather(1, next.unsqueeze(1)).squeeze(1)).abs().max().item<double>(),
                1e-4)
          << name;
      EXPECT_LE((table.slice(2, 1).sum(-1) - table.select(2, 0)).abs().max().item<double>(), 1e-4) << name;
      EXPECT_LE(text.about["logit_error"].get<double>(), 1e-4);
    }
  }
}

// Contributions sum to the logits of models that combine all parts. Rounding causes no warning in either precision.
TEST(Inspector, ContributionsSumToTheLogitsOfDrawnModels) {
  const at::NoGradGuard no_grad;
  std::mt19937_64 random(1);
  const std::vector<testing::Choice> axes[] = {testing::projections(), testing::scores(),       testing::compositions(),
                                               testing::positions(),   testing::output_gates(), testing::masks()};
  for (int drawn = 0; drawn < 200;) {
    config::ModelOptions options = testing::small_model();
    std::string name;
    for (const std::vector<testing::Choice>& axis : axes) {
      const testing::Choice& choice = axis[random() % axis.size()];
      choice.set(options);
      name += choice.name + ", ";
    }
    options.n_layers = 2;
    if (options.kind != config::ModelKind::language_model || !testing::refusal(options).empty()) {
      continue;
    }
    ++drawn;
    const models::LanguageModel model(options, 5);
    for (const bool half : {false, true}) {
      nn::Context context;
      if (half) {
        context.compute_dtype = at::kBFloat16;
      }
      ::testing::internal::CaptureStderr();
      const Inspection text = inspect_text(model, {1, 7, 2, 10, 4}, context, {.show_progress = false});
      EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << name << (half ? "bfloat16" : "");
      EXPECT_LE(text.about["logit_error"].get<double>(), half ? INFINITY : 5e-6) << name;
    }
  }
}

// An observer that changes values after they are recorded makes the contributions wrong.
TEST(Inspector, WarnsIfContributionsDoNotSumToTheLogits) {
  const at::NoGradGuard no_grad;
  struct : nn::Observer {
    bool wants(std::string_view name) const override { return name == "layer1.out"; }
    at::Tensor observe(std::string_view, at::Tensor value) override { return value * 1.01; }
  } change;
  nn::Context context;
  context.observer = &change;
  const models::LanguageModel model(analyse::small::two_layers(40, 24), 5);
  ::testing::internal::CaptureStderr();
  inspect_text(model, inspected_ids(), context, {.show_progress = false});
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("more than rounding explains"), std::string::npos);
}

// A classifier has bidirectional maps, contributions, and class probabilities instead of predictions.
TEST(Inspector, ClassifiersShowTheirClasses) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, of] : inspected_models()) {
    if (of.attention.window > 0) {
      continue;
    }
    const config::ModelOptions options = tiny::changed(of, "", "kind=classifier n_classes=3 tied_embeddings=false");
    SCOPED_TRACE(name);
    const models::Classifier model(options, 5);
    const std::vector<std::int32_t> ids = inspected_ids();
    const std::int64_t t = std::ssize(ids);
    const Inspection text = inspect_text(model, ids, {});
    models::Batch batch;
    batch.tensors["tokens"] = row_of(ids);
    nn::Recorder recorder({"layer*.attention.probs", "layer*.attention.probs_composed"});
    nn::Context context;
    context.observer = &recorder;
    const at::Tensor classes = model.class_logits(batch, context)[0].softmax(-1);
    for (std::int64_t c = 0; c < 3; ++c) {
      EXPECT_NEAR(text.about["classes"][static_cast<std::size_t>(c)].get<double>(), classes[c].item<double>(), 1e-5);
    }
    EXPECT_FALSE(text.about["causal"].get<bool>());
    EXPECT_FALSE(text.about["logits"].get<bool>());
    for (const PackedArray& packed : text.packed) {
      EXPECT_TRUE(packed.name != "predictions" && packed.name != "logits") << packed.name;
    }
    for (std::int64_t l = 0; l < 2; ++l) {
      const std::string layer = fmt::format("layer{}.attention.", l);
      const bool composed = recorder.values.contains(layer + "probs_composed");
      const at::Tensor weights = recorder.at(layer + (composed ? "probs_composed" : "probs"))[0];
      for (std::int64_t h = 0; h < weights.size(0); ++h) {
        const auto& packed = std::find_if(text.packed.begin(), text.packed.end(), [&](const PackedArray& p) {
                               return p.name == fmt::format("map.{}.{}", l, h);
                             })->bytes;
        EXPECT_LE((unpacked_map(packed, t, false) - weights[h]).abs().max().item<double>(), 1e-3);
      }
      EXPECT_LE(text.about["layers"][static_cast<std::size_t>(l)]["residual"].get<double>(), 1e-5);
    }
  }
  const config::ModelOptions pairs =
      tiny::changed(analyse::small::two_layers(40, 24), "", "kind=classifier n_classes=3 paired=true");
  EXPECT_THROW(inspect_text(models::Classifier(pairs, 5), inspected_ids(), {}), UserError);
}

TEST(Inspector, TheLargestContributionsComeFirst) {
  const at::NoGradGuard no_grad;
  const config::ModelOptions options = tiny::changed(analyse::small::two_layers(40, 24), "projection=experts");
  const models::LanguageModel model(options, 5);
  nn::Recorder recorder([&] {
    std::vector<std::string> names = attributed_values(options.attention);
    for (std::string& name : names) {
      name.insert(0, "layer1.attention.");
    }
    return names;
  }());
  nn::Context context;
  context.observer = &recorder;
  models::Memory memory;
  const std::vector<std::int32_t> ids = inspected_ids();
  model.logits(row_of(ids), memory, context);
  LayerValues values;
  for (const auto& [name, value] : recorder.values) {
    values[name.substr(std::string("layer1.attention.").size())] = value;
  }
  const Attribution a =
      attribute(values, {.options = options.attention, .parameters = model.parameters(), .scope = "layer1.attention."});
  const at::Tensor length = a.out.norm(2, {-1}, true);
  const at::Tensor all = sizes(a, readout(a, a.out / length / length), 0, 24).transpose(0, 1).flatten(1);
  const Inspection text = inspect_text(model, ids, {}, {.most_contributions = 5});
  Fields fields = field(text, "contributions.1");
  fields.take(at::kShort, {4, 24, 5});
  const at::Tensor size = fields.take(at::kHalf, {24, 5});
  const at::Tensor largest = all.gather(1, std::get<1>(all.abs().topk(5, -1)));
  EXPECT_LE((size - largest).abs().max().item<double>(), 1e-3);
}

TEST(Inspector, BadTextsAreRefused) {
  const models::LanguageModel model(analyse::small::two_layers(40, 24), 5);
  EXPECT_THROW(inspect_text(model, {}, {}), UserError);
  EXPECT_THROW(inspect_text(model, std::vector<std::int32_t>(25, 1), {}), UserError);
  EXPECT_NO_THROW(inspect_text(model, {3}, {}));
}

TEST(InspectorPage, HoldsAllArraysAndIsEscaped) {
  const auto tokenizer = tokenizers::restore_tokenizer(config::TokenizerKind::bytes, "", "test");
  const models::LanguageModel model(analyse::small::two_layers(256, 24), 5);
  const std::vector<std::int32_t> ids = tokenizer->encode("a</script>\xc3\xa4");
  InspectorPage page{"a <b>", ids, *tokenizer, {}};
  page.views.push_back({"run</script>", 3, inspect_text(model, ids, {}), {"first class", "second class"}});
  const std::string html = render_inspector(page);
  const auto count = [&](std::string_view what) {
    std::int64_t n = 0;
    for (std::size_t at = html.find(what); at != std::string::npos; at = html.find(what, at + 1)) {
      ++n;
    }
    return n;
  };
  EXPECT_EQ(count("<script"), count("</script>"));
  EXPECT_EQ(count("<script type=\"application/octet-stream\""), std::ssize(page.views[0].text.packed));
  EXPECT_NE(html.find("<title>a &lt;b></title>"), std::string::npos);
  EXPECT_NE(html.find("\\u003c/script>"), std::string::npos);
  EXPECT_NE(html.find("\"class_names\":[\"first class\",\"second class\"]"), std::string::npos);
  EXPECT_EQ(count("http:") + count("https:"), 0);
  EXPECT_NE(html.find("\"\\\\xC3\",\"\\\\xA4\""), std::string::npos) << html.substr(html.find("\"tokens\""), 200);
}

}  // namespace headroom::inspector::inspector_test
