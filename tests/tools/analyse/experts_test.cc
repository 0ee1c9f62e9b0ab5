#include <gtest/gtest.h>

#include <cmath>

#include "small_model.h"
#include "tiny/files.h"
#include "tools/analyse/vocabulary.h"

namespace headroom::analyse::experts_test {

using small::found;
using small::small_model;

constexpr const char* kSwitching = "attention.projection=experts mlp.kind=experts ";

// Compares the load with routing recorded chunk by chunk.
TEST(Experts, LoadMatchesTheRouting) {
  const store::OpenedModel opened = small_model(kSwitching);
  const std::string text = tiny::text(70);
  const Findings experts = found(opened, "experts", text);
  std::map<std::string, at::Tensor> counts;
  for (std::size_t begin = 0; begin < text.size(); begin += 12) {
    for (const auto& [name, value] : small::recorded(opened, text.substr(begin, 12)).values) {
      if (name.ends_with(".index")) {
        at::Tensor& sum = counts[name.substr(0, name.size() - 6)];
        sum = sum.defined() ? sum : at::zeros({value.size(1), 4}, at::kLong);
        for (std::int64_t h = 0; h < value.size(1); ++h) {
          sum[h] += at::bincount(value.select(1, h).reshape({-1}), {}, 4);
        }
      }
    }
  }
  ASSERT_EQ(counts.size(), 6U);
  for (const auto& [name, count] : counts) {
    EXPECT_TRUE(experts.tensors.at(name + ".count").equal(count)) << name;
    const at::Tensor share = count[0].to(at::kDouble) / count[0].sum();
    double entropy = 0.0;
    for (std::int64_t e = 0; e < 4; ++e) {
      const double p = share[e].item<double>();
      entropy -= p > 0.0 ? p * std::log(p) / std::log(4.0) : 0.0;
      EXPECT_NEAR(experts.metrics.at(name).at("experts")[static_cast<std::size_t>(e)].at("share").get<double>(), p,
                  1e-12);
    }
    EXPECT_NEAR(experts.metrics.at(name).at("entropy")[0].get<double>(), entropy, 1e-12) << name;
  }
}

// Only some layers have experts in their MLPs, and their numbers differ.
TEST(Experts, LayersMayDiffer) {
  const std::string layers = R"(n_layers=3 layers=[{attention={window=4},mlp={kind="experts",n_experts=5}},)"
                             R"({mlp={kind="experts",n_experts=3,top_k=2}},{}])";
  const Findings experts = found(small_model(layers), "experts", tiny::text(70));
  ASSERT_EQ(experts.metrics.size(), 2U);
  EXPECT_EQ(experts.tensors.at("layer0.ffn.select.count").size(1), 5);
  EXPECT_EQ(experts.tensors.at("layer1.ffn.select.count").size(1), 3);
  EXPECT_EQ(experts.tensors.at("layer1.ffn.select.count").sum().item<std::int64_t>(), 2 * 70);
}

// Compares the counts and the memory after a sample with reading its chunks one after the other. The last chunk is
// shorter.
TEST(Experts, EveryChunkHasTheMemoryOfThoseBeforeIt) {
  const store::OpenedModel opened = small_model(std::string(kSwitching) + "memory_length=12");
  const ModelRunner runner(opened);
  const std::string text = tiny::text(600 + 5);
  const std::unique_ptr<InputText> samples = open_text(opened, {.text = text});
  at::Tensor expected = at::zeros({4}, at::kLong);
  models::Memory memory;
  for (std::size_t begin = 0; begin < text.size(); begin += 12) {
    models::Memory of_sample;
    const InputBatch input = samples->sample(static_cast<std::int64_t>(begin / 12), of_sample);
    for (std::size_t layer = 0; layer < memory.layers.size(); ++layer) {
      EXPECT_TRUE(of_sample.layers.at(layer).allclose(memory.layers[layer], 1e-5, 1e-5)) << begin << " " << layer;
    }
    nn::Recorder recorder({"layer1.ffn.select.index"});
    runner.forward(input, memory, recorder);
    expected += at::bincount(recorder.at("layer1.ffn.select.index").reshape({-1}), {}, 4);
  }
  const Findings experts = found(opened, "experts", text);
  EXPECT_TRUE(experts.tensors.at("layer1.ffn.select.count")[0].equal(expected))
      << experts.tensors.at("layer1.ffn.select.count") << expected;
}

// One encoder reads and counts both texts of a pair.
TEST(Experts, BothTextsOfAPairAreCounted) {
  const store::OpenedModel opened = small_model("kind=classifier attention.projection=experts paired=true");
  const Findings experts = found(opened, "experts", "one text\tother\nx\tyz");
  EXPECT_EQ(experts.tensors.at("layer0.attention.select_in.count").sum().item<std::int64_t>(), (8 + 5 + 1 + 2) * 2 * 2);
}

// This hand-made router sends the letter a to the first expert and everything else to the second. Of 88 tokens in
// complete words, 58 are in "aa" and 30 in "b".
TEST(Experts, PmiOfAHandMadeRouter) {
  const store::OpenedModel opened = small_model(
      "attention.projection=experts n_layers=1 context_length=150 attention.n_heads=1 attention.n_experts=2 "
      "attention.top_k=1");
  const at::Tensor direction = at::tensor({1., -1., 1., -1., 1., -1., 1., -1., 1., -1., 1., -1.}).to(at::kFloat);
  const ModelRunner runner(opened);
  runner.parameter("embed").copy_(-direction.expand({260, 12}));
  runner.parameter("embed").select(0, 'a').copy_(direction);
  runner.parameter("layer0.norm_1.scale").fill_(1.0);
  runner.parameter("layer0.norm_1.bias").fill_(0.0);
  const at::Tensor router = runner.parameter("layer0.attention.select_in");  // [d, 1, 2]
  router.select(2, 0).copy_(direction.unsqueeze(1));
  router.select(2, 1).copy_(-direction.unsqueeze(1));
  std::string text;
  for (int i = 0; i < 30; ++i) {
    text += "aa b ";
  }
  const Findings experts = found(opened, "experts", text);
  const Json& both = experts.metrics.at("layer0.attention.select_in").at("experts");
  ASSERT_EQ(both[0].at("words_by_pmi").size(), 1U);
  EXPECT_EQ(both[0].at("words_by_pmi")[0].at("word"), "aa");
  EXPECT_NEAR(both[0].at("words_by_pmi")[0].at("pmi").get<double>(), std::log2(88.0 / 58.0), 1e-9);
  EXPECT_EQ(both[1].at("words_by_pmi")[0].at("word"), "b");
  EXPECT_NEAR(both[1].at("words_by_pmi")[0].at("pmi").get<double>(), std::log2(88.0 / 30.0), 1e-9);
  EXPECT_EQ(both[0].at("tokens")[0].at("token"), "a");
  EXPECT_EQ(both[0].at("tokens")[0].at("share"), 1.0);
  EXPECT_EQ(both[1].at("tokens")[0].at("token"), " ") << "tokens are ranked by frequency";
  EXPECT_NEAR(both[0].at("share").get<double>(), 0.4, 1e-9);
  const at::Tensor shares = experts.tensors.at("layer0.attention.select_in.shares");  // of " ", "a" and "b"
  EXPECT_TRUE(shares.equal(at::tensor({0., 1., 0., 1., 0., 1.}, at::kDouble).view({2, 3}))) << shares;
}

TEST(Vocabulary, WordsAreSeparatedByBlanks) {
  const store::OpenedModel opened = small_model("");
  Vocabulary vocabulary{ModelRunner(opened)};
  const std::string text = "x one, (two) one .. thr";
  std::vector<std::int64_t> ids(text.begin(), text.end());
  const Vocabulary::Indices indices = vocabulary.index(at::tensor(ids, at::kLong).unsqueeze(0), TextSide::source);
  ASSERT_EQ(vocabulary.words().size(), 2);
  EXPECT_EQ(vocabulary.words().text(0), "one");
  EXPECT_EQ(vocabulary.words().text(1), "two");
  const std::vector<std::int64_t> expected = {-1, -1, 0, 0, 0,  0,  -1, 1,  1,  1,  1, 1,
                                              -1, 0,  0, 0, -1, -1, -1, -1, -1, -1, -1};
  EXPECT_EQ(indices.word, expected) << "words that may be cut off have no index";
}

TEST(Vocabulary, TokenKinds) {
  const std::vector<std::pair<std::string, std::string_view>> expected = {
      {" ", "blank"},          {"\n", "blank"},       {" 12", "number"},  {",", "punctuation"},
      {" The", "capitalised"}, {"ing", "lower case"}, {"\u00e9", "other"}};
  for (const auto& [token, kind] : expected) {
    EXPECT_EQ(kTokenKinds[static_cast<std::size_t>(token_kind(token))], kind) << token;
  }
}

}  // namespace headroom::analyse::experts_test
