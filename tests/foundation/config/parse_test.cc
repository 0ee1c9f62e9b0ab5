#include <gtest/gtest.h>

#include "complaint.h"
#include "headroom/config/attention/position_options.h"
#include "headroom/config/attention/routing_options.h"
#include "headroom/config/config.h"

namespace headroom::config {
namespace parse_test {

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

TEST(ParseConfig, EmptyTextIsTheDefault) {
  EXPECT_EQ(to_toml(parse_config("", "x")), to_toml(Config()));
  EXPECT_EQ(to_toml(parse_config("# nothing\n[model]\n[train]", "x")), to_toml(Config()));
}

TEST(ParseConfig, UnknownKeysNameTheNearest) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[model.attention]\nn_head = 2", "train.toml:2: model.attention.n_head: unknown key, did you mean n_heads?"},
      {"[model]\nd_model = 8\n\nn_heads = 2",
       "train.toml:4: model.n_heads: unknown key, did you mean model.attention.n_heads?"},
      {"[model.attention]\nn_layers = 2",
       "train.toml:2: model.attention.n_layers: unknown key, did you mean model.n_layers?"},
      {"[train]\nlerning_rate = 1", "train.toml:2: train.lerning_rate: unknown key, did you mean learning_rate?"},
      {"[train]\nbacth_size = 1", "train.toml:2: train.bacth_size: unknown key, did you mean batch_size?"},
      {"steps = 10", "train.toml:1: steps: unknown key, did you mean train.steps?"},
      {"[modle]\nd_model = 8", "train.toml:1: modle: unknown table, did you mean model?"},
      {"[attention]\nn_heads = 8", "train.toml:1: attention: unknown table, did you mean model.attention?"},
      {"[model.attn]\nn_heads = 8", "train.toml:1: model.attn: unknown table"},
      {"[model]\nfrobnicate = 8", "train.toml:2: model.frobnicate: unknown key"},
      {"[model]\n\"a b\" = 8", "train.toml:2: model.a b: unknown key"},
      {"[model]\nx = 8", "train.toml:2: model.x: unknown key"},
      {"[model]\nx = { y = 8 }", "train.toml:2: model.x: unknown table"},
      {"[[model]]\nd_model = 8", "train.toml:1: model: must be a table [model], got [a table]"},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_EQ(complaint(text), expected) << text;
  }
  EXPECT_LT(complaint("[model]\n" + std::string(100'000, 'k') + " = 1").size(), 200u);
}

TEST(ParseConfig, TheFirstMistakeInTheFileIsTheOneReported) {
  EXPECT_EQ(complaint("[train]\nsteps = 0\nbatch_size = 0"),
            "train.toml:2: train.steps: must be an integer from 1 to 1000000000000, got 0");
}

TEST(ParseConfig, WrongTypesAndRanges) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"model.d_model = 2.5", "model.d_model: must be an integer from 1 to 1048576, got 2.5"},
      {"model.d_model = 2.0", "model.d_model: must be an integer from 1 to 1048576, got 2.0"},
      {"model.d_model = \"2\"", "model.d_model: must be an integer from 1 to 1048576, got \"2\""},
      {"model.d_model = 0", "model.d_model: must be an integer from 1 to 1048576, got 0"},
      {"model.d_model = -1", "model.d_model: must be an integer from 1 to 1048576, got -1"},
      {"model.d_model = 9223372036854775807",
       "model.d_model: must be an integer from 1 to 1048576, got 9223372036854775807"},
      {"model.d_model = true", "model.d_model: must be an integer from 1 to 1048576, got true"},
      {"model.d_model = [2]", "model.d_model: must be an integer from 1 to 1048576, got [2]"},
      {"model.d_model = {x = 1}", "model.d_model: must be an integer from 1 to 1048576, got a table"},
      {"model.d_model = 1979-05-27", "model.d_model: must be an integer from 1 to 1048576, got 1979-05-27"},
      {"model.dropout = 1", "model.dropout: must be a number of at least 0 and below 1, got 1"},
      {"model.dropout = nan", "model.dropout: must be a number of at least 0 and below 1, got nan"},
      {"train.weight_decay = inf", "train.weight_decay: must be a number of at least 0, got inf"},
      {"train.weight_decay = -0.1", "train.weight_decay: must be a number of at least 0, got -0.1"},
      {"train.learning_rate = 0", "train.learning_rate: must be a number above 0 and at most 1e+30, got 0"},
      {"train.learning_rate = \"fast\"",
       "train.learning_rate: must be a number above 0 and at most 1e+30, got \"fast\""},
      {"model.attention.rope_fraction = 1.5",
       "model.attention.rope_fraction: must be a number above 0 and at most 1, got 1.5"},
      {"model.attention.rope_base = -inf", "model.attention.rope_base: must be a number above 1, got -inf"},
      {"model.tied_embeddings = 1", "model.tied_embeddings: must be true or false, got 1"},
      {"model.tied_embeddings = \"true\"", "model.tied_embeddings: must be true or false, got \"true\""},
      {"model.norm = \"batch\"", "model.norm: must be one of \"layer\", \"rms\", got \"batch\""},
      {"model.norm = 1", "model.norm: must be one of \"layer\", \"rms\", got 1"},
      {"train.optimizer = \"sgd\"", "train.optimizer: must be one of \"adamw\", \"muon\", got \"sgd\""},
      {"tokenizer.model = 3", "tokenizer.model: must be a string, got 3"},
      {"data.train = \"x.txt\"", "data.train: must be a list of strings, got \"x.txt\"; a list is written [\"x.txt\"]"},
      {"data.train = 1", "data.train: must be a list of strings, got 1; a list is written [\"a\", \"b\"]"},
      {"train.betas = \"0.9, 0.99\"",
       "train.betas: must be a list of numbers, each of at least 0 and below 1, got \"0.9, 0.99\"; a list is written "
       "[1, 2]"},
      {"train.evaluate_every = \"often\"",
       "train.evaluate_every: must be an integer from 0 to 1000000000000, or \"auto\", got \"often\""},
      {"train.checkpoint_every = -1",
       "train.checkpoint_every: must be an integer from 0 to 1000000000000, or \"auto\", got -1"},
      {"train.steps = \"auto\"", "train.steps: must be an integer from 1 to 1000000000000, got \"auto\""},
      {"data.train = [1]", "data.train: must be a list of strings, got [1]"},
      {"model.attention.experts = [\"v\", \"x\"]",
       "model.attention.experts: must be a list of strings out of \"q\", \"k\", \"v\", \"o\", got [\"v\", \"x\"]"},
      {"train.betas = [0.9, 1.0]",
       "train.betas: must be a list of numbers, each of at least 0 and below 1, got [0.9, 1.0]"},
      {"model.adaptive_cutoffs = [1.5]",
       "model.adaptive_cutoffs: must be a list of integers, each from 1 to 2147483647, got [1.5]"},
      {"model.adaptive_cutoffs = [3, 0]",
       "model.adaptive_cutoffs: must be a list of integers, each from 1 to 2147483647, got [3, 0]"},
      {"model.adaptive_cutoffs = 3",
       "model.adaptive_cutoffs: must be a list of integers, each from 1 to 2147483647, got 3; a list is written [3]"},
      {"train.betas = 0.9",
       "train.betas: must be a list of numbers, each of at least 0 and below 1, got 0.9; a list is written [0.9]"},
      {"model.attention = 3", "model.attention: must be a table [model.attention], got 3"},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_EQ(complaint("\n\n" + text), "train.toml:3: " + expected) << text;
  }
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
      {"model.layers=3", "--set: model.layers: must be a list of tables, got 3"},
      {"model.layers=[3]", "--set: model.layers.0: must be a table, got 3"},
      {"model.layers=[{attention=3}]", "--set: model.layers.0.attention: must be a table, got 3"},
      {"model.layers=[{atention={}}]", "--set: model.layers.0.atention: unknown key; must be repeat, attention or mlp"},
      {"model.layers=[{attention={n_head=2}}]",
       "--set: model.layers.0.attention.n_head: unknown key, did you mean n_heads?"},
      {"model.layers.1.attention.window=-1",
       "--set: model.layers.1.attention.window: must be an integer from 0 to 1073741824, got -1"},
      {"model.layers.2.repeat=2",
       "--set: model.layers.2.repeat: must be model.layers.N.KEY, where N is an entry of model.layers, of which there "
       "are "
       "2"},
      {"model.layers.0.repeat=0", "--set: model.layers.0.repeat: must be an integer from 1 to 65536, got 0"},
      {"model.layers.0.repeat=8",
       "x: model.layers: the pattern must have at most 8 layers, as many as the model, got 9"},
      {"model.layers.1.attention.top_k=5", "x: model.layers.1.attention.top_k: must be at most n_experts = 4, got 5"},
      {"model.layers.0.attention.position=learned",
       "x: model.layers.0.attention.position: must be \"rope\" as in model.attention, or both must add no vectors to "
       "the "
       "embeddings, got \"learned\""},
      {"model.layers.0.attention.sink=true", "no error"},
      {"model.layers.0.attention.kv_rank=3",
       "x: model.layers.0.attention.kv_rank: needs projection = \"factored\" or \"latent\", not \"dense\""},
      {"model.layers.0.attention.window_pattern=1:1",
       "--set: model.layers.0.attention.window_pattern: must not be set for some of the layers; set window"},
      {"model.attention.window_pattern=1:1",
       "x: model.attention.window_pattern: must not be set with model.layers, whose entries set window"}};
  for (const auto& [assignment, expected] : cases) {
    EXPECT_EQ(wrong(assignment), expected) << assignment;
  }
}

TEST(ParseConfig, LongValuesAreShortened) {
  const std::string text = complaint("model.norm = \"" + std::string(5000, 'x') + "\"");
  EXPECT_TRUE(text.ends_with("xxx..."));
  EXPECT_LT(text.size(), 200u);
  std::string umlauts;
  for (int i = 0; i < 200; ++i) {
    umlauts += "ä";
  }
  EXPECT_TRUE(complaint("model.norm = \"" + umlauts + "\"").ends_with("ä..."));
  EXPECT_TRUE(complaint("model.norm = \"" + umlauts + "x\"").ends_with("ä..."));
}

TEST(ParseConfig, SyntaxErrorsHaveTheirLine) {
  EXPECT_EQ(complaint("[model]\nd_model = \n"), "train.toml:2: not valid TOML: expected value, saw '\\n'");
  EXPECT_TRUE(complaint("[model]\nd_model = 8\nd_model = 9").starts_with("train.toml:3: not valid TOML: "));
  EXPECT_TRUE(complaint("[model\nd_model = 8").starts_with("train.toml:1: not valid TOML: "));
  EXPECT_TRUE(complaint("[model]\n[model]\n").starts_with("train.toml:2: not valid TOML: "));
  EXPECT_TRUE(complaint("model.d_model = 9223372036854775808").starts_with("train.toml:1: not valid TOML: "));
  EXPECT_TRUE(complaint("just words").starts_with("train.toml:1: not valid TOML: "));
  EXPECT_TRUE(complaint("model.norm = \"a").starts_with("train.toml:1: not valid TOML: "));
}

TEST(ParseConfig, InvalidUtf8AndBinaryAreRefusedInOneCleanLine) {
  using namespace std::string_literals;
  for (const std::string& bytes :
       {"x = \"\xff\""s, "# \xc3\x28"s, "\xed\xa0\x80"s, "x = \0"s, "\x1f\x8b\x08\x00"s, "\x7f"s, "\r\r"s}) {
    const std::string text = complaint(bytes);
    EXPECT_TRUE(text.starts_with("train.toml:1: not valid TOML: ")) << text;
    EXPECT_TRUE(std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; })) << text;
  }
}

TEST(ParseConfig, DepthNeverReachesTheStack) {
  std::string dots = "a";
  for (int i = 0; i < 400'000; ++i) {
    dots += ".a";
  }
  const std::string refused = "train.toml: not a config: it contains 400000 dotted names and numbers";
  EXPECT_EQ(complaint(dots + " = 1"), refused);
  EXPECT_EQ(complaint("[" + dots + "]"), refused);
  EXPECT_EQ(complaint("x = \"\\\"\"\n" + dots + " = 1"), refused);
  EXPECT_EQ(complaint("x = '\\'\n" + dots + " = 1"), refused);
  EXPECT_EQ(complaint("x = {k = '''\n''', " + dots + " = 1}"), refused);
  EXPECT_EQ(complaint("x = \"\"\"a\"\"\"\"\"\n" + dots + " = 1"), refused);
  EXPECT_EQ(complaint("# it's\n" + dots + " = 1"), refused);
  EXPECT_TRUE(complaint("x = " + std::string(400'000, '[')).starts_with("train.toml:1: not valid TOML: "));
  // Dots in strings and comments do not count.
  const std::string many(100'000, '.');
  EXPECT_EQ(
      complaint("# " + many + "\n[tokenizer]\nmodel = \"" + many + "\"\n[data]\nseparator = '''" + many + "\n'''"),
      "no error");
}

}  // namespace parse_test
}  // namespace headroom::config
