#include "fuzz.h"

#include "headroom/config/config.h"

namespace headroom::config::config_fuzz_test {

constexpr std::int64_t kCampaigns = 2;  // both fuzz the same parser

TEST(ConfigFuzz, Toml) {
  const fuzz::Material material{
      .good = {"[model]\nn_layers = 2\nd_model = 64\n[model.attention]\nprojection = \"experts\"\nexperts = [\"v\", "
               "\"o\"]\n",
               to_toml(Config()), "model.mlp = {kind = \"gated\", d_hidden = 7}\ntrain.betas = [0.9, 0.95]\n",
               "[data]\ntrain = [\"a.txt\"]\nvalidation = ['b.txt']\nseparator = \"\"\"\n\"\"\"\n"},
      .dictionary = {"[model]", "[[model]]", "=", "\"", "'", "\"\"\"", "{", "}", "[", "]", "true", "inf", "nan", "0x7f",
                     "1979-05-27", "\\u0000", "model.", "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", "{a={a={a={a={"}};
  fuzz::against(
      material, 2500,
      [](const std::string& input) {
        const Config config = parse_config(input, "input.toml");
        const std::string text = to_toml(config);
        EXPECT_EQ(to_toml(parse_config(text, "again.toml")), text);
        check(config, "input.toml");
      },
      kCampaigns);
}

TEST(ConfigFuzz, Set) {
  const fuzz::Material material{
      .good = {"model.n_layers=3", "train.betas=[0.9, 0.95]", "data.train=[\"a\", 'b']", "tokenizer.model=a b",
               "model.attention.n_heads = 4"},
      .dictionary = {"=", ".", "[", "]", "\"", "'", "model", "train.", "{", "}", "#", "\n", "inf", "\"\"\""}};
  fuzz::against(
      material, 4000,
      [](const std::string& input) {
        Config config;
        set_key(config, input);
      },
      kCampaigns);
}

}  // namespace headroom::config::config_fuzz_test
