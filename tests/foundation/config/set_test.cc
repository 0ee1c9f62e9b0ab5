#include <gtest/gtest.h>

#include <array>

#include "complaint.h"
#include "headroom/config/config.h"
#include "headroom/config/part_options.h"

namespace headroom::config::set_test {

Config with(std::string_view assignment) {
  Config config;
  set_key(config, assignment);
  return config;
}

std::string complaint(std::string_view assignment) {
  return complaint_of([&] { with(assignment); });
}

TEST(SetKey, TakesValuesAsInToml) {
  EXPECT_EQ(with("train.steps=500").train.steps, 500);
  EXPECT_EQ(with(" train.steps = 1_000 ").train.steps, 1000);
  EXPECT_EQ(with("train.learning_rate=2.5e-4").train.learning_rate, 2.5e-4);
  EXPECT_EQ(with("train.learning_rate=1").train.learning_rate, 1.0);
  EXPECT_TRUE(with("model.attention.bias=true").model.attention.bias);
  EXPECT_EQ(with("train.betas=[0.9, 0.98]").train.betas, (std::vector<double>{0.9, 0.98}));
  EXPECT_EQ(with("model.adaptive_cutoffs=[20, 40]").model.adaptive_cutoffs, (std::vector<std::int64_t>{20, 40}));
  EXPECT_EQ(with("data.train=[\"a b\", 'c']").data.train, (std::vector<std::string>{"a b", "c"}));
  EXPECT_EQ(with("data.train=[]").data.train, std::vector<std::string>());
  EXPECT_EQ(with("model.norm=\"rms\"").model.norm, Norm::rms);
}

TEST(SetKey, TakesBareWordsAsStrings) {
  EXPECT_EQ(with("model.attention.projection=experts").model.attention.projection, "experts");
  EXPECT_EQ(with("tokenizer.model=runs/a b.model").tokenizer.model, "runs/a b.model");
  EXPECT_EQ(with("tokenizer.model=a=b").tokenizer.model, "a=b");
  EXPECT_EQ(with("tokenizer.model=2024").tokenizer.model, "2024");
  EXPECT_EQ(with("tokenizer.model=").tokenizer.model, "");
  EXPECT_EQ(with("tokenizer.model=[a]").tokenizer.model, "[a]");
  EXPECT_EQ(with("model.attention.window_pattern=3:1").model.attention.window_pattern, "3:1");
  EXPECT_EQ(with("model.attention.experts=[v, k]").model.attention.of<ExpertOptions>().experts,
            (std::vector<std::string>{"v", "k"}));
  EXPECT_EQ(with("data.separator=\"\\n\\n\"").data.separator, "\n\n");
}

TEST(SetKey, AnIntegerThatARunMayChoose) {
  const Config by_default, never = with("train.checkpoint_every=0"), again = with("train.checkpoint_every=auto");
  EXPECT_EQ(by_default.train.checkpoint_every, kAutomatic);
  EXPECT_EQ(by_default.train.evaluate_every, kAutomatic);
  EXPECT_EQ(never.train.checkpoint_every, 0);
  EXPECT_EQ(again.train.checkpoint_every, kAutomatic);
  EXPECT_NE(to_toml(again).find("\ncheckpoint_every = \"auto\"\n"), std::string::npos);
  EXPECT_EQ(parse_config(to_toml(again), "again").train.checkpoint_every, kAutomatic);
}

// Earlier configs, checkpoints and scripts contain these names.
TEST(SetKey, AcceptsEarlierNames) {
  EXPECT_EQ(with("train.parts=2").train.gradient_accumulators, 2);
  EXPECT_EQ(with("data.most_words=9").data.max_words, 9);
  EXPECT_EQ(with("data.length_ratio=1.5").data.max_length_ratio, 1.5);
  EXPECT_EQ(with("data.validation_share=0.25").data.validation_fraction, 0.25);
  EXPECT_EQ(with("data.pixel_deviation=[0.5]").data.pixel_std, std::vector<double>{0.5});
  EXPECT_EQ(with("model.attention.shift_deviation=0.5").model.attention.of<MixtureOptions>().shift_std, 0.5);
  EXPECT_EQ(with("decoding.beam=7").decoding.beam_size, 7);
  EXPECT_EQ(parse_config("[decoding]\nbeam = 7\n", "x").decoding.beam_size, 7);
  EXPECT_EQ(subject_of(complaint("decoding.beam=0")), "--set: decoding.beam");
}

TEST(SetKey, RefusesInOneSentence) {
  const std::vector<std::array<std::string, 3>> cases = {
      {"train.steps", "\"train.steps\"", ""},
      {"=5", "\"=5\"", ""},
      {"train.step=5", "train.step", "train.steps"},
      {"steps=5", "steps", "train.steps"},
      {"model.n_heads=5", "model.n_heads", "model.attention.n_heads"},
      {"modle.attention.n_heads=5", "modle.attention.n_heads", "model.attention.n_heads"},
      {"model.d_model.x=5", "model.d_model.x", ""},
      {"model..d_model=5", "model..d_model", "model.d_model"},
      {"model=5", "model", ""},
      {"train.steps=", "train.steps", ""},
      {"train.steps=many", "train.steps", ""},
      {"train.steps=1e3", "train.steps", ""},
      {"train.steps=5\ntrain.seed=3", "train.steps", ""},
      {"model.attention.experts=[v, x]", "model.attention.experts", ""},
      {"model.norm=Layer", "model.norm", ""},
      {"tokenizer.model=\xff", "tokenizer.model", ""},
      {"data.train=[\xff]", "data.train", ""},
  };
  for (const auto& [assignment, key, suggestion] : cases) {
    const std::string message = complaint(assignment);
    EXPECT_EQ(subject_of(message), "--set: " + key) << assignment;
    EXPECT_EQ(suggestion_of(message), suggestion) << assignment;
    EXPECT_EQ(message.find_first_of("\n\xff"), std::string::npos) << message;
  }
}

TEST(Variation, ValuesStandBetweenCommas) {
  const Variation rate = parse_variation("train.learning_rate=3e-4,1e-3", "--tune");
  EXPECT_EQ(rate.key, "train.learning_rate");
  EXPECT_EQ(rate.values, (std::vector<std::string>{"3e-4", "1e-3"}));
  EXPECT_EQ(parse_variation("a=[v,o],[o]", "--tune").values, (std::vector<std::string>{"[v,o]", "[o]"}));
  EXPECT_EQ(parse_variation("a={b=1,c=2},{b=2}", "--tune").values, (std::vector<std::string>{"{b=1,c=2}", "{b=2}"}));
  EXPECT_EQ(parse_variation("a=s,max(s,1)", "--tune").values, (std::vector<std::string>{"s", "max(s,1)"}));
  EXPECT_EQ(parse_variation("a=\"x,y\",z", "--tune").values, (std::vector<std::string>{"\"x,y\"", "z"}));
  for (const char* wrong : {"", "a", "=1", "a=", "a=1,", "a=,1", "a=1,,2"}) {
    EXPECT_TRUE(complaint_of([&] { parse_variation(wrong, "compare: --tune"); }).starts_with("compare: --tune "));
  }
}

}  // namespace headroom::config::set_test
