#include <gtest/gtest.h>

#include <array>

#include "complaint.h"
#include "headroom/config/config.h"
#include "headroom/config/part_options.h"

namespace headroom::config::parse_test {

std::string complaint(std::string_view text) {
  return complaint_of([&] { parse_config(text, "train.toml"); });
}

TEST(ParseConfig, ReadsEveryKind) {
  const Config config = parse_config(R"(
model.n_layers = 3
model.adaptive_cutoffs = [2_000, 4000]
[model.attention]
projection = "experts"
experts = ["q", "o"]
bias = true
rope_base = 500
[tokenizer]
model = 'a\b'
[train]
betas = [0, 0.5]
learning_rate = 1e-3
precision = "auto"
seed = 9007199254740992
)",
                                     "x");
  EXPECT_EQ(config.model.n_layers, 3);
  EXPECT_EQ(config.model.adaptive_cutoffs, (std::vector<std::int64_t>{2000, 4000}));
  EXPECT_EQ(config.model.attention.projection, "experts");
  EXPECT_EQ(config.model.attention.of<ExpertOptions>().experts, (std::vector<std::string>{"q", "o"}));
  EXPECT_TRUE(config.model.attention.bias);
  EXPECT_EQ(config.model.attention.of<PositionOptions>().rope_base, 500.0);
  EXPECT_EQ(config.tokenizer.model, "a\\b");
  EXPECT_EQ(config.train.betas, (std::vector<double>{0, 0.5}));
  EXPECT_EQ(config.train.learning_rate, 1e-3);
  EXPECT_EQ(config.train.precision, Precision::automatic);
  EXPECT_EQ(config.train.seed, 9007199254740992);
  EXPECT_EQ(config.model.d_model, ModelOptions().d_model);
}

TEST(ParseConfig, UnknownKeysNameTheNearest) {
  const std::vector<std::array<std::string, 3>> cases = {
      {"[model.attention]\nn_head = 2", "2: model.attention.n_head", "n_heads"},
      {"[model]\nd_model = 8\n\nn_heads = 2", "4: model.n_heads", "model.attention.n_heads"},
      {"[model.attention]\nn_layers = 2", "2: model.attention.n_layers", "model.n_layers"},
      {"[train]\nlerning_rate = 1", "2: train.lerning_rate", "learning_rate"},
      {"[train]\nbacth_size = 1", "2: train.bacth_size", "batch_size"},
      {"steps = 10", "1: steps", "train.steps"},
      {"[modle]\nd_model = 8", "1: modle", "model"},
      {"[attention]\nn_heads = 8", "1: attention", "model.attention"},
      {"[model.attn]\nn_heads = 8", "1: model.attn", ""},
      {"[model]\nfrobnicate = 8", "2: model.frobnicate", ""},
      {"[model]\n\"a b\" = 8", "2: model.a b", ""},
      {"[model]\nx = 8", "2: model.x", ""},
      {"[model]\n\"attention.dropout\" = 0.3", "2: model.attention.dropout", ""},
      {"[model]\nx = { y = 8 }", "2: model.x", ""},
      {"[[model]]\nd_model = 8", "1: model", ""},
  };
  for (const auto& [text, place, suggestion] : cases) {
    EXPECT_EQ(subject_of(complaint(text)), "train.toml:" + place) << text;
    EXPECT_EQ(suggestion_of(complaint(text)), suggestion) << text;
  }
  EXPECT_LT(complaint("[model]\n" + std::string(100'000, 'k') + " = 1").size(), 200u);
}

TEST(ParseConfig, TheFirstMistakeInTheFileIsTheOneReported) {
  EXPECT_EQ(subject_of(complaint("[train]\nsteps = -1\nbatch_size = 0")), "train.toml:2: train.steps");
}

constexpr std::string_view kPattern = R"(
[model]
n_layers = 8
[model.attention]
n_experts = 4
[[model.layers]]
repeat = 3
attention = { window = 256 }
[[model.layers]]
attention = { projection = "experts", experts = ["v", "o"], top_k = 3 }
mlp = { kind = "experts" }
)";

TEST(ParseConfig, LayersThatDiffer) {
  Config config = parse_config(kPattern, "x");
  check(config, "x");
  EXPECT_EQ(config.model.of_layer(6).attention.window, 256);
  EXPECT_EQ(config.model.of_layer(7).attention.of<RoutingOptions>().top_k, 3);
  const std::string text = to_toml(config);
  EXPECT_NE(text.find("\nlayers = [{repeat = 3, attention = {window = 256}}, {attention = {experts = [\"v\", \"o\"], "
                      "projection = \"experts\", top_k = 3}, mlp = {kind = \"experts\"}}]\n"),
            std::string::npos)
      << text;
  EXPECT_EQ(to_toml(parse_config(text, "again")), text);
  EXPECT_EQ(to_toml(Config()).find("layers = ["), std::string::npos);
  set_key(config, "model.layers.0.attention.window=128");
  set_key(config, "model.layers.1.repeat=5");
  set_key(config, "model.layers.1.mlp={kind=\"gated\"}");
  EXPECT_EQ(config.model.of_layer(2).attention.window, 128);
  EXPECT_EQ(config.model.of_layer(7).mlp.kind, MlpKind::gated);
  EXPECT_EQ(unused_keys(config).size(), 0U);
  set_key(config, "model.layers=[]");
  EXPECT_EQ(config.model.of_layer(0).attention.window, 0);
}

TEST(ParseConfig, MistakesInLayersNameTheLayer) {
  const auto wrong = [](std::string_view assignment) {
    return complaint_of([&] {
      Config config = parse_config(kPattern, "x");
      set_key(config, assignment);
      check(config, "x");
    });
  };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"model.layers=3", "--set: model.layers"},
      {"model.layers=[3]", "--set: model.layers.0"},
      {"model.layers=[{attention=3}]", "--set: model.layers.0.attention"},
      {"model.layers=[{atention={}}]", "--set: model.layers.0.atention"},
      {"model.layers=[{attention={n_head=2}}]", "--set: model.layers.0.attention.n_head"},
      {"model.layers.1.attention.window=-1", "--set: model.layers.1.attention.window"},
      {"model.layers.2.repeat=2", "--set: model.layers.2.repeat"},
      {"model.layers.0.repeat=0", "--set: model.layers.0.repeat"},
      {"model.layers.0.repeat=8", "x: model.layers"},
      {"model.layers.1.attention.top_k=5", "x: model.layers.1.attention.top_k"},
      {"model.layers.0.attention.position=learned", "x: model.layers.0.attention.position"},
      {"model.layers.0.attention.sink=true", "no error"},
      {"model.layers.0.attention.kv_rank=3", "x: model.layers.0.attention.kv_rank"},
      {"model.layers.0.attention.window_pattern=1:1", "--set: model.layers.0.attention.window_pattern"},
      {"model.attention.window_pattern=1:1", "x: model.attention.window_pattern"}};
  for (const auto& [assignment, expected] : cases) {
    EXPECT_EQ(subject_of(wrong(assignment)), expected) << assignment;
  }
}

TEST(ParseConfig, SyntaxErrorsHaveTheirLine) {
  EXPECT_TRUE(complaint("[model]\nd_model = \n").starts_with("train.toml:2: "));
  EXPECT_TRUE(complaint("[model]\nd_model = 8\nd_model = 9").starts_with("train.toml:3: "));
  EXPECT_TRUE(complaint("[model\nd_model = 8").starts_with("train.toml:1: "));
  EXPECT_TRUE(complaint("[model]\n[model]\n").starts_with("train.toml:2: "));
  EXPECT_TRUE(complaint("model.d_model = 9223372036854775808").starts_with("train.toml:1: "));
  EXPECT_TRUE(complaint("just words").starts_with("train.toml:1: "));
  EXPECT_TRUE(complaint("model.norm = \"a").starts_with("train.toml:1: "));
}

TEST(ParseConfig, InvalidUtf8AndBinaryAreRefusedInOneCleanLine) {
  using namespace std::string_literals;
  for (const std::string& bytes :
       {"x = \"\xff\""s, "# \xc3\x28"s, "\xed\xa0\x80"s, "x = \0"s, "\x1f\x8b\x08\x00"s, "\x7f"s, "\r\r"s}) {
    const std::string text = complaint(bytes);
    EXPECT_TRUE(text.starts_with("train.toml:1: ")) << text;
    EXPECT_TRUE(std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; })) << text;
  }
}

TEST(ParseConfig, DepthNeverReachesTheStack) {
  std::string dots = "a";
  for (int i = 0; i < 400'000; ++i) {
    dots += ".a";
  }
  const auto refused = [](const std::string& text) { return complaint(text).starts_with("train.toml: "); };
  EXPECT_TRUE(refused(dots + " = 1"));
  EXPECT_TRUE(refused("[" + dots + "]"));
  EXPECT_TRUE(refused("x = \"\\\"\"\n" + dots + " = 1"));
  EXPECT_TRUE(refused("x = '\\'\n" + dots + " = 1"));
  EXPECT_TRUE(refused("x = {k = '''\n''', " + dots + " = 1}"));
  EXPECT_TRUE(refused("x = \"\"\"a\"\"\"\"\"\n" + dots + " = 1"));
  EXPECT_TRUE(refused("# it's\n" + dots + " = 1"));
  EXPECT_TRUE(complaint("x = " + std::string(400'000, '[')).starts_with("train.toml:1: "));
  // Dots in strings and comments do not count.
  const std::string many(100'000, '.');
  EXPECT_EQ(
      complaint("# " + many + "\n[tokenizer]\nmodel = \"" + many + "\"\n[data]\nseparator = '''" + many + "\n'''"),
      "no error");
}

}  // namespace headroom::config::parse_test
