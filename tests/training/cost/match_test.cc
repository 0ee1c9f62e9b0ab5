// match() against the papers' printed widths.
#include "training/cost/match.h"

#include <gtest/gtest.h>

#include <string>

#include "headroom/config/attention/composition_options.h"
#include "headroom/config/attention/position_options.h"
#include "headroom/config/attention/routing_options.h"
#include "headroom/core/error.h"
#include "small_model.h"
#include "training/cost/cost.h"

namespace headroom::cost {
namespace match_test {

struct Printed {
  const char* recipe;
  const char* target;
  std::int64_t d_hidden;  // the result; the recipe's own if it finds the printed row
};

// Discards the recipe's widths and matches them again.
MatchResult rematch(const Printed& row) {
  config::Config config = recipe(row.recipe);
  if (config.model.attention.composition == "none" && config.model.attention.score != "gaussian_mixture") {
    config.model.attention.d_head = 4;
  }
  if (config.model.mlp.kind != config::MlpKind::experts) {
    config.model.mlp.d_hidden = 1;
  }
  return match(config, recipe(row.target), MatchBy::parameters);
}

std::string name_of_case(const testing::TestParamInfo<Printed>& info) {
  std::string name = info.param.recipe;
  name = name.substr(name.find('/') + 1);
  return name;
}

class FoundExactly : public testing::TestWithParam<Printed> {};

TEST_P(FoundExactly, ByParameters) {
  const config::ModelOptions printed = recipe(GetParam().recipe).model;
  const MatchResult result = rematch(GetParam());
  EXPECT_EQ(result.config.model.attention.d_head, printed.attention.d_head);
  EXPECT_EQ(result.config.model.mlp.d_hidden, printed.mlp.d_hidden);
  EXPECT_EQ(result.parameters, count_parameters(printed));
  EXPECT_LE(result.parameters, result.target_parameters);
  EXPECT_LT(result.target_parameters - result.parameters, 100'000);
}

INSTANTIATE_TEST_SUITE_P(
    PrintedRow, FoundExactly,
    testing::Values(Printed{"switchhead/wt103_47m", "switchhead/wt103_47m_dense_h10", 0},
                    Printed{"switchhead/c4_47m", "switchhead/wt103_47m_dense_h10", 0},
                    Printed{"switchhead/wt103_47m_dense_h2", "switchhead/wt103_47m_dense_h10", 0},
                    Printed{"switchhead/wt103_262m_dense_h2", "switchhead/wt103_262m_dense_h16", 0},
                    Printed{"switchhead/c4_262m_dense_h4", "switchhead/wt103_262m_dense_h16", 0},
                    Printed{"switchhead/enwik8_41m_dense_h2", "switchhead/enwik8_41m_dense_h8", 0},
                    Printed{"switchhead/wt103_45m_rope_dense_h2", "switchhead/wt103_45m_rope_dense_h10", 0},
                    Printed{"switchhead/wt103_244m_rope_dense_h2", "switchhead/wt103_244m_rope_dense_h16", 0},
                    Printed{"switchhead/wt103_262m_moa_h8", "switchhead/wt103_262m_dense_h16", 0},
                    Printed{"switchhead/table1_v", "switchhead/wt103_47m_dense_h10", 0},
                    Printed{"switchhead/table1_k", "switchhead/wt103_47m_dense_h10", 0},
                    Printed{"switchhead/table1_q", "switchhead/wt103_47m_dense_h10", 0},
                    Printed{"switchhead/table1_o", "switchhead/wt103_47m_dense_h10", 0},
                    Printed{"switchhead/table1_vo", "switchhead/wt103_47m_dense_h10", 0},
                    Printed{"switchhead/table1_vq", "switchhead/wt103_47m_dense_h10", 0},
                    Printed{"switchhead/table1_ko", "switchhead/wt103_47m_dense_h10", 0},
                    Printed{"switchhead/table1_kq", "switchhead/wt103_47m_dense_h10", 0},
                    Printed{"switchhead/table1_vkqo", "switchhead/wt103_47m_dense_h10", 0}),
    name_of_case);

// Not printed: the demo's recipes, which were made by match().
INSTANTIATE_TEST_SUITE_P(Demo, FoundExactly,
                         testing::Values(Printed{"demo/dense_h2", "demo/dense_h8", 0},
                                         Printed{"demo/switchhead_h2", "demo/dense_h8", 0}),
                         name_of_case);

INSTANTIATE_TEST_SUITE_P(Zoo, FoundExactly,
                         testing::Values(Printed{"zoo/switchhead", "zoo/dense", 0},
                                         Printed{"zoo/switchall", "zoo/dense", 0}, Printed{"zoo/moa", "zoo/dense", 0},
                                         Printed{"zoo/dcmha", "zoo/dense", 0}, Printed{"zoo/mgk", "zoo/dense", 0},
                                         Printed{"zoo/smgk", "zoo/dense", 0}, Printed{"zoo/gated", "zoo/dense", 0},
                                         Printed{"zoo/sink", "zoo/dense", 0}, Printed{"zoo/mla", "zoo/dense", 0},
                                         Printed{"switchhead/wt103_47m_gated_heads", "switchhead/wt103_47m_dense_h10",
                                                 0}),
                         name_of_case);

// d_head as printed, but another d_hidden: the authors stopped before the largest that fits (Enwik8, both rotary rows,
// C4 262M, three kinds of experts), used one width for all rows with two kinds (vk, qo), or went over the target
// (WikiText-103 262M by 630 parameters, MoA 47M by 192).
class DHeadFound : public testing::TestWithParam<Printed> {};

TEST_P(DHeadFound, DHiddenDiffers) {
  const config::ModelOptions printed = recipe(GetParam().recipe).model;
  const MatchResult result = rematch(GetParam());
  EXPECT_EQ(result.config.model.attention.d_head, printed.attention.d_head);
  EXPECT_EQ(result.config.model.mlp.d_hidden, GetParam().d_hidden);
  EXPECT_NE(printed.mlp.d_hidden, GetParam().d_hidden);
  EXPECT_LE(result.parameters, result.target_parameters);
  EXPECT_LT(result.target_parameters - result.parameters, 100'000);
}

INSTANTIATE_TEST_SUITE_P(
    PrintedRow, DHeadFound,
    testing::Values(Printed{"switchhead/c4_262m", "switchhead/wt103_262m_dense_h16", 4190},
                    Printed{"switchhead/wt103_262m", "switchhead/wt103_262m_dense_h16", 4146},
                    Printed{"switchhead/enwik8_41m", "switchhead/enwik8_41m_dense_h8", 2093},
                    Printed{"switchhead/wt103_45m_rope", "switchhead/wt103_45m_rope_dense_h10", 2094},
                    Printed{"switchhead/wt103_243m_rope", "switchhead/wt103_244m_rope_dense_h16", 4141},
                    Printed{"switchhead/wt103_47m_moa_h4", "switchhead/wt103_47m_dense_h10", 2061},
                    Printed{"switchhead/table1_vk", "switchhead/wt103_47m_dense_h10", 2085},
                    Printed{"switchhead/table1_qo", "switchhead/wt103_47m_dense_h10", 2085},
                    Printed{"switchhead/table1_vko", "switchhead/wt103_47m_dense_h10", 2116},
                    Printed{"switchhead/table1_vqo", "switchhead/wt103_47m_dense_h10", 2116},
                    Printed{"switchhead/table1_kqo", "switchhead/wt103_47m_dense_h10", 2116},
                    Printed{"switchhead/table1_vkq", "switchhead/wt103_47m_dense_h10", 2116}),
    name_of_case);

TEST(Match, ExpertMlpKeepsItsWidthWhereAWiderOneWouldExceed) {
  // SwitchAll (SwitchHead, A.6): only the attention grows; wider MLP experts would not fit.
  config::Config config = recipe("switchhead/wt103_47m_switchall");
  const MatchResult result = match(config, recipe("switchhead/wt103_47m_dense_h10"), MatchBy::parameters);
  EXPECT_EQ(result.config.model.mlp.d_hidden, 128);
  EXPECT_LE(result.parameters, result.target_parameters);
}

TEST(Match, CandidatesAreThePapersTrials) {
  const MatchResult small =
      match(recipe("switchhead/wt103_47m"), recipe("switchhead/wt103_47m_dense_h10"), MatchBy::parameters);
  ASSERT_EQ(small.candidates.size(), 3u);  // 10 is not a multiple of 4
  for (std::int64_t i = 0; i < 3; ++i) {
    const Candidate& candidate = small.candidates[static_cast<std::size_t>(i)];
    EXPECT_EQ(candidate.n_heads, 2);
    EXPECT_EQ(candidate.n_experts, 5);
    EXPECT_EQ(candidate.top_k, 2 + i);
    EXPECT_EQ(candidate.d_head, 76);
    EXPECT_EQ(candidate.d_hidden, 2080);
  }
  EXPECT_EQ(small.candidates[0].attention_macs, 170'364'928);
  EXPECT_EQ(small.candidates[1].attention_macs, 202'506'240);

  const MatchResult large =
      match(recipe("switchhead/c4_262m"), recipe("switchhead/wt103_262m_dense_h16"), MatchBy::parameters);
  ASSERT_EQ(large.candidates.size(), 4u);
  EXPECT_EQ(large.candidates[2].n_experts, 8);  // the WikiText-103 model: H=2, k=4, e=132
  EXPECT_EQ(large.candidates[2].top_k, 4);
  EXPECT_EQ(large.candidates[2].d_head, 132);
  EXPECT_EQ(large.candidates[3].n_heads, 4);  // the C4 model: H=4, k=2, e=112
  EXPECT_EQ(large.candidates[3].top_k, 2);
  EXPECT_EQ(large.candidates[3].d_head, 112);

  EXPECT_TRUE(
      match(recipe("switchhead/wt103_47m_dense_h2"), recipe("switchhead/wt103_47m_dense_h10"), MatchBy::parameters)
          .candidates.empty());
}

TEST(Match, HeadsAndExpertsOfTheConfigStay) {
  config::Config config = recipe("switchhead/wt103_47m");
  config.model.attention.n_heads = 3;
  config.model.attention.of<config::RoutingOptions>().n_experts = 4;
  config.model.attention.of<config::RoutingOptions>().top_k = 1;
  const MatchResult result = match(config, recipe("switchhead/wt103_47m_dense_h10"), MatchBy::parameters);
  EXPECT_EQ(result.config.model.attention.n_heads, 3);
  EXPECT_EQ(result.config.model.attention.of<config::RoutingOptions>().n_experts, 4);
  EXPECT_EQ(result.config.model.attention.of<config::RoutingOptions>().top_k, 1);
  EXPECT_LE(result.parameters, result.target_parameters);
}

// A model of a few million parameters is matched to within 0.5%, never above.
TEST(Match, SmallModels) {
  config::Config target;
  target.model.vocabulary_size = 2000;
  target.model.d_model = 192;
  target.model.context_length = 128;
  target.model.memory_length = 128;
  target.model.attention.n_heads = 8;
  target.model.attention.d_head = 24;
  target.model.attention.position = "relative";
  target.model.mlp.d_hidden = 768;
  target.tokenizer.vocabulary_size = 2000;
  for (const bool experts : {false, true}) {
    config::Config config = target;
    config.model.attention.n_heads = 2;
    if (experts) {
      config.model.attention.projection = "experts";
      config.model.attention.of<config::RoutingOptions>().n_experts = 4;
      config.model.attention.of<config::RoutingOptions>().top_k = 2;
    }
    const MatchResult result = match(config, target, MatchBy::parameters);
    EXPECT_LE(result.parameters, result.target_parameters);
    EXPECT_LT(result.target_parameters - result.parameters, result.target_parameters / 200);
    config::Config wider = result.config;
    wider.model.mlp.d_hidden += 1;
    EXPECT_GT(count_parameters(wider.model), result.target_parameters);
    if (!experts) {
      EXPECT_EQ(result.config.model.attention.d_head, 96);
      EXPECT_EQ(result.parameters, result.target_parameters);
    }
  }
}

TEST(Match, RotaryHeadsTurnInPairsOfChannels) {
  const config::Config target = recipe("switchhead/wt103_45m_rope_dense_h10");
  config::Config config = recipe("switchhead/wt103_45m_rope_dense_h2");
  const auto d_head = [&](double rope_fraction) {
    config.model.attention.of<config::PositionOptions>().rope_fraction = rope_fraction;
    return match(config, target, MatchBy::parameters).config.model.attention.d_head;
  };
  EXPECT_EQ(d_head(0.5), 205);   // 102 channels
  EXPECT_EQ(d_head(1.0), 204);   // not 205
  EXPECT_EQ(d_head(0.25), 203);  // 50; 204 and 205 would make 51
}

TEST(Match, ComposedHeadsKeepTheirWidth) {
  const config::Config target = recipe("zoo/dense");
  config::Config config = target;
  config.model.attention.composition = "dynamic";
  const MatchResult narrower = match(config, target, MatchBy::parameters);
  EXPECT_EQ(narrower.config.model.attention.d_head, target.model.attention.d_head);
  EXPECT_LT(narrower.config.model.mlp.d_hidden, target.model.mlp.d_hidden);
  EXPECT_LE(narrower.parameters, narrower.target_parameters);
  EXPECT_LT(narrower.target_parameters - narrower.parameters, 4 * (2 * 192 + 1));
  config.model.attention.d_head = 12;
  EXPECT_GT(match(config, target, MatchBy::parameters).config.model.mlp.d_hidden, target.model.mlp.d_hidden);
  config.model.attention.of<config::CompositionOptions>().compose_rank = 64;
  EXPECT_THROW(match(config, target, MatchBy::parameters), UserError);
}

TEST(Match, RefusesATargetThatIsTooSmall) {
  config::Config target = recipe("switchhead/wt103_47m_dense_h10");
  target.model.n_layers = 1;
  EXPECT_THROW(match(recipe("switchhead/wt103_47m"), target, MatchBy::parameters), UserError);
}

struct MacMatched {
  const char* start;
  const char* target;
  const char* printed;
  std::int64_t macs, parameters;
};

class FoundByMacs : public testing::TestWithParam<MacMatched> {};

// SwitchHead, section 3.5: the three models that it specifies fully.
TEST_P(FoundByMacs, HeadsAndWidth) {
  const auto& [start, target, printed_name, macs, parameters] = GetParam();
  const config::ModelOptions printed = recipe(printed_name).model;
  const MatchResult result = match(recipe(start), recipe(target), MatchBy::macs);
  EXPECT_EQ(result.config.model.attention.n_heads, printed.attention.n_heads);
  EXPECT_EQ(result.config.model.attention.d_head, printed.attention.d_head);
  EXPECT_EQ(result.config.model.mlp.d_hidden, printed.mlp.d_hidden);
  EXPECT_EQ(result.attention_macs, macs);
  EXPECT_EQ(result.parameters, parameters);
  EXPECT_LE(result.attention_macs, result.target_attention_macs);
}

INSTANTIATE_TEST_SUITE_P(PrintedRow, FoundByMacs,
                         testing::Values(MacMatched{"switchhead/c4_47m", "switchhead/wt103_47m_dense_h10",
                                                    "switchhead/c4_63m_macs", 445'091'840, 63'081'400},
                                         MacMatched{"switchhead/c4_262m", "switchhead/wt103_262m_dense_h16",
                                                    "switchhead/c4_376m_macs", 5'295'276'032, 376'206'776},
                                         MacMatched{"switchhead/wt103_45m_rope", "switchhead/wt103_45m_rope_dense_h10",
                                                    "switchhead/c4_54m_rope_macs", 560'267'264, 54'380'152}));

TEST(MatchByMacs, RoutedHeadsStayWithinTheirExperts) {
  const MatchResult result =
      match(recipe("switchhead/wt103_47m_moa_h8"), recipe("switchhead/wt103_262m_dense_h16"), MatchBy::macs);
  const config::AttentionOptions& attention = result.config.model.attention;
  EXPECT_EQ(attention.n_heads, 10);
  EXPECT_EQ(attention.of<config::RoutingOptions>().top_k, 10);
  EXPECT_LE(result.attention_macs, result.target_attention_macs);
}

TEST(MatchByMacs, ALargerModelShrinksItsHeads) {
  const MatchResult result =
      match(recipe("switchhead/wt103_262m_dense_h16"), recipe("switchhead/wt103_47m_dense_h10"), MatchBy::macs);
  EXPECT_EQ(result.config.model.attention.n_heads, 16);
  EXPECT_LT(result.config.model.attention.d_head, 64);
  EXPECT_LE(result.attention_macs, result.target_attention_macs);
}

TEST(Match, OnlyModelsOfOneKind) {
  config::Config classifier = recipe("small/listops_dense_h8");
  try {
    match(recipe("demo/dense_h2"), classifier, MatchBy::parameters);
    FAIL() << "accepted";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("model.kind"), std::string::npos);
  }
}

}  // namespace match_test
}  // namespace headroom::cost
