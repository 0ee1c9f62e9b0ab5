// Built models have as many parameters as the printed tables say (SwitchHead, Tables 1, 2, 5, 9) and as cost counts.
#include <gtest/gtest.h>

#include "headroom/config/config.h"
#include "headroom/cost/cost.h"
#include "headroom/models/classifier.h"
#include "headroom/models/language_model.h"

namespace headroom::models {
namespace {

// Shapes only: nothing of the 262 million numbers is allocated.
std::int64_t built(const config::ModelOptions& options) {
  if (options.kind == config::ModelKind::classifier) {
    return Classifier(options, 1, at::TensorOptions(at::kFloat).device(at::kMeta)).parameters().count();
  }
  return LanguageModel(options, 1, at::TensorOptions(at::kFloat).device(at::kMeta)).parameters().count();
}

struct Row {
  const char* recipe;
  std::int64_t printed;
  std::int64_t unused;  // the authors' dense XL layers hold one scalar more each, which nothing reads
};

TEST(ParameterCount, SwitchHeadTablesAreMetByBuiltModelsAndByCost) {
  for (const Row& row : std::vector<Row>{{"switchhead/wt103_47m_dense_h10", 47260136, 16},
                                         {"switchhead/wt103_47m_dense_h2", 47260136, 16},
                                         {"switchhead/c4_47m", 47247416, 0},
                                         {"switchhead/wt103_47m", 47247416, 0},
                                         {"switchhead/wt103_262m_dense_h16", 262479968, 18},
                                         {"switchhead/wt103_262m_dense_h2", 262479968, 18},
                                         {"switchhead/c4_262m_dense_h4", 262479968, 18},
                                         {"switchhead/c4_262m", 262370744, 0},
                                         {"switchhead/wt103_262m", 262480598, 0},
                                         {"switchhead/enwik8_41m_dense_h8", 41234721, 12},
                                         {"switchhead/enwik8_41m_dense_h2", 41234721, 12},
                                         {"switchhead/enwik8_41m", 41161389, 0},
                                         {"switchhead/wt103_45m_rope_dense_h10", 44544264, 0},
                                         {"switchhead/wt103_45m_rope_dense_h2", 44544264, 0},
                                         {"switchhead/wt103_45m_rope", 44505336, 0},
                                         {"switchhead/wt103_244m_rope_dense_h16", 243568700, 0},
                                         {"switchhead/wt103_244m_rope_dense_h2", 243568700, 0},
                                         {"switchhead/wt103_243m_rope", 243347984, 0},
                                         {"switchhead/wt103_47m_switchall", 46891128, 0},
                                         {"switchhead/wt103_259m_switchall", 259475264, 0},
                                         {"switchhead/wt103_272m_switchall", 272451392, 0},
                                         {"switchhead/table1_v", 47247176, 0},
                                         {"switchhead/table1_vo", 47247416, 0},
                                         {"switchhead/table1_qo", 47181496, 0},
                                         {"switchhead/table1_vk", 47181496, 0},
                                         {"switchhead/table1_vko", 47234792, 0},
                                         {"switchhead/table1_vkqo", 47247096, 0}}) {
    const config::ModelOptions model = config::load_config(row.recipe).model;
    EXPECT_EQ(built(model), row.printed - row.unused) << row.recipe;
    EXPECT_EQ(cost::count_parameters(model), row.printed - row.unused) << row.recipe;
  }
}

TEST(ParameterCount, CostAgreesForEveryRecipeThatCanBeBuilt) {
  int compared = 0;
  for (const std::string& name : config::recipe_names()) {
    const config::ModelOptions model = config::load_config(name).model;
    const bool can_be = model.kind == config::ModelKind::language_model || model.kind == config::ModelKind::classifier;
    if (!can_be) {
      continue;
    }
    ++compared;
    EXPECT_EQ(built(model), cost::count_parameters(model)) << name;
  }
  EXPECT_GE(compared, 120);
}

TEST(ParameterCount, CostAgreesForOtherOptions) {
  config::ModelOptions o;
  o.vocabulary_size = 31;
  o.d_model = 16;
  o.attention.n_heads = 4;
  o.attention.d_head = 8;
  for (const config::MlpKind mlp : {config::MlpKind::dense, config::MlpKind::gated, config::MlpKind::experts}) {
    for (const bool flag : {false, true}) {
      for (const config::Position position :
           {config::Position::none, config::Position::rope, config::Position::relative, config::Position::learned,
            config::Position::sinusoidal}) {
        o.mlp.kind = mlp;
        o.mlp.bias = flag;
        o.tied_embeddings = flag;
        o.head_bias = !flag;
        o.norm = flag ? config::Norm::rms : config::Norm::layer;
        o.attention.bias = flag;
        o.attention.qk_norm = flag;
        o.attention.n_kv_heads = flag ? 2 : 0;
        o.attention.position = position;
        o.attention.position_bias = position == config::Position::relative && flag;
        o.attention.scale = flag ? config::Scale::learned : config::Scale::inv_sqrt;
        EXPECT_EQ(built(o), cost::count_parameters(o)) << config::name_of(mlp) << config::name_of(position) << flag;
      }
    }
  }
}

}  // namespace
}  // namespace headroom::models
