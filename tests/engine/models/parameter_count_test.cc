// Built models have as many parameters as cost counts; tests/training/cost/recipes_test.cc has the papers' sizes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "headroom/config/attention/position_options.h"
#include "headroom/config/config.h"
#include "headroom/models/model.h"
#include "training/cost/cost.h"

namespace headroom::models {
namespace parameter_count_test {

// On the meta device, without allocating 262 million elements.
std::unique_ptr<Model> shapes(const config::ModelOptions& options) {
  return make_model(options, 1, at::TensorOptions(at::kFloat).device(at::kMeta));
}

std::int64_t built(const config::ModelOptions& options) {
  return shapes(options)->parameters().count();
}

// Elements of each tensor, in ascending order, and whether it is a hidden matrix.
using Tensors = std::vector<std::pair<std::int64_t, bool>>;

Tensors tensors(const config::ModelOptions& options) {
  const std::unique_ptr<Model> model = shapes(options);
  Tensors all;
  for (const nn::Parameter& parameter : model->parameters().all()) {
    all.emplace_back(parameter.tensor.numel(), parameter.hidden.has_value());
  }
  std::sort(all.begin(), all.end());
  return all;
}

Tensors counted_tensors(const config::ModelOptions& options) {
  Tensors all;
  for (const cost::ParameterTensor& tensor : cost::parameter_tensors(options)) {
    all.emplace_back(tensor.elements, tensor.hidden);
  }
  std::sort(all.begin(), all.end());
  return all;
}

// MoA, Table 2: 51.34M, 52.45M, 61.89M, 78.75M, 112.47M and 179.91M.
TEST(ParameterCount, MaskedLanguageModelsOfMoA) {
  for (const auto& [recipe, numbers] : std::vector<std::pair<std::string, std::int64_t>>{
           {"moa/wikitext103_mlm_dense", 51337305}, {"moa/wikitext103_mlm_8k8e128d", 52445273}}) {
    EXPECT_EQ(built(config::load_config(recipe).model), numbers) << recipe;
  }
}

// MoEUT: 243.3M.
TEST(ParameterCount, RepeatedLayersCountOnce) {
  EXPECT_EQ(built(config::load_config("neighbours/moeut_244m").model), 243326784);
}

TEST(ParameterCount, CostAgreesForEveryRecipe) {
  std::map<config::ModelKind, int> compared;
  for (const std::string& name : config::recipe_names()) {
    const config::ModelOptions model = config::load_config(name).model;
    ++compared[model.kind];
    EXPECT_EQ(built(model), cost::count_parameters(model)) << name;
    EXPECT_EQ(tensors(model), counted_tensors(model)) << name;
  }
  EXPECT_EQ(compared.size(), 5U);  // every kind has recipes
  EXPECT_GE(compared[config::ModelKind::language_model] + compared[config::ModelKind::classifier], 120);
}

config::ModelOptions other_options(config::ModelKind kind, config::MlpKind mlp, const std::string& position,
                                   bool flag) {
  config::ModelOptions o;
  o.kind = kind;
  o.vocabulary_size = 31;
  o.d_model = 16;
  o.attention.n_heads = 4;
  o.attention.d_head = 8;
  o.mlp.kind = mlp;
  o.mlp.bias = flag;
  o.tied_embeddings = flag;
  o.head_bias = !flag;
  o.norm = flag ? config::Norm::rms : config::Norm::layer;
  o.norm_position = flag ? config::NormPosition::post : config::NormPosition::pre;
  o.attention.bias = flag;
  o.attention.qk_norm = flag;
  o.attention.n_kv_heads = flag ? 2 : 0;
  o.attention.position = position;
  o.attention.of<config::PositionOptions>().position_bias = position == "relative" && flag;
  o.attention.scale = flag ? config::Scale::learned : config::Scale::inv_sqrt;
  if (o.has_classes()) {
    o.n_classes = 3;
    o.d_head_hidden = flag ? 5 : 0;
    o.tied_embeddings = false;
  }
  if (kind == config::ModelKind::vision) {
    o.image_size = 12;
    o.patch_size = 4;
    o.context_length = 9;
  }
  o.source_vocabulary_size = kind == config::ModelKind::encoder_decoder && flag ? 19 : 0;
  return o;
}

TEST(ParameterCount, CostAgreesForOtherOptions) {
  for (const config::ModelKind kind :
       {config::ModelKind::language_model, config::ModelKind::masked_language_model, config::ModelKind::encoder_decoder,
        config::ModelKind::classifier, config::ModelKind::vision}) {
    for (const config::MlpKind mlp : {config::MlpKind::dense, config::MlpKind::gated, config::MlpKind::experts}) {
      for (const bool flag : {false, true}) {
        for (const std::string position : {"none", "rope", "relative", "learned", "sinusoidal"}) {
          const config::ModelOptions o = other_options(kind, mlp, position, flag);
          EXPECT_EQ(built(o), cost::count_parameters(o))
              << config::name_of(kind) << " " << config::name_of(mlp) << " " << position << flag;
          EXPECT_EQ(tensors(o), counted_tensors(o))
              << config::name_of(kind) << " " << config::name_of(mlp) << " " << position << flag;
        }
      }
    }
  }
}

}  // namespace parameter_count_test
}  // namespace headroom::models
