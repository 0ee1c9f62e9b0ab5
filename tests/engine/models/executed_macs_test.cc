// The multiply-accumulates that `cost` counts equal those of the matmuls that a forward pass executes.
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <functional>

#include "engine/nn/combinations.h"
#include "headroom/config/attention_part.h"
#include "headroom/core/error.h"
#include "headroom/models/classifier.h"
#include "headroom/models/encoder_decoder.h"
#include "headroom/models/language_model.h"
#include "headroom/models/masked_language_model.h"
#include "headroom/models/vision_transformer.h"
#include "one_thread.h"
#include "small_models.h"
#include "training/cost/cost.h"

namespace headroom::models {
namespace executed_macs_test {

std::int64_t counted = 0;

// m x k times k x n, batched or not.
std::unique_ptr<at::ObserverContext> count_product(const at::RecordFunction& call) {
  const std::string name = call.name();
  const bool product = name == "aten::mm" || name == "aten::bmm" || name == "aten::addmm" || name == "aten::baddbmm";
  if (product) {
    const std::size_t first = name.find("add") != std::string::npos ? 1 : 0;
    const at::Tensor a = call.inputs()[first].toTensor(), b = call.inputs()[first + 1].toTensor();
    counted += a.numel() * b.size(-1);
  }
  return nullptr;
}

// The matmuls of one call.
std::int64_t products_of(const std::function<void(const nn::Context&)>& call) {
  const at::NoGradGuard no_grad;
  const nn::Context context{.implementation = Implementation::reference};
  counted = 0;
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(count_product).needsInputs(true));
  call(context);
  at::removeCallback(handle);
  return counted;
}

at::Tensor tokens_of(const config::ModelOptions& options) {
  return at::randint(options.vocabulary_size, {1, options.context_length}, at::kLong);
}

std::int64_t executed(const config::ModelOptions& options) {
  const at::NoGradGuard no_grad;
  const LanguageModel model(options, 1, at::kFloat);
  Memory memory;
  at::manual_seed(1);
  if (options.memory_length > 0) {
    model.logits(tokens_of(options), memory, {});  // fills the memory
  }
  return products_of([&](const nn::Context& context) { model.logits(tokens_of(options), memory, context); });
}

std::int64_t claimed(const config::ModelOptions& options) {
  const cost::ExecutedCost cost = cost::executed_cost(options, 1);
  return cost.attention_macs + cost.mlp_macs + cost.head_macs;
}

TEST(ExecutedMacs, AreThoseOfTheMatmulsThatRun) {
  std::int64_t checked = 0;
  for (const testing::Choice& projection : testing::projections()) {
    for (const testing::Choice& score : testing::scores()) {
      for (const testing::Choice& composition : testing::compositions()) {
        for (const testing::Choice& mask : testing::masks()) {
          for (const testing::Choice& position : testing::positions()) {
            config::ModelOptions m = testing::small_model();
            m.n_layers = 1;
            for (const testing::Choice* choice : {&projection, &score, &composition, &mask, &position}) {
              choice->set(m);
            }
            if (m.kind != config::ModelKind::language_model || !testing::refusal(m).empty()) {
              continue;
            }
            EXPECT_EQ(executed(m), claimed(m)) << projection.name << " / " << score.name << " / " << composition.name
                                               << " / " << mask.name << " / " << position.name;
            ++checked;
          }
        }
      }
    }
  }
  EXPECT_GE(checked, 2070);  // combinations of today's parts that are not refused
}

TEST(ExecutedMacs, OfOutputGates) {
  std::int64_t checked = 0;
  for (const testing::Choice& projection : testing::gated_projections()) {
    for (const std::int64_t memory : {0, 5}) {
      config::ModelOptions m = testing::small_model();
      projection.set(m);
      m.memory_length = memory;
      if (testing::refusal(m).empty()) {
        EXPECT_EQ(executed(m), claimed(m)) << projection.name << " memory " << memory;
        ++checked;
      }
    }
  }
  EXPECT_GE(checked, 88);
}

TEST(ExecutedMacs, OfLayersThatDiffer) {
  const auto models = testing::two_layer_models();
  EXPECT_GT(models.size(), 300U);
  for (const auto& [name, m] : models) {
    EXPECT_EQ(executed(m), claimed(m)) << name;
  }
}

TEST(ExecutedMacs, OfRepeatedLayers) {
  config::ModelOptions m = testing::moeut();
  EXPECT_EQ(executed(m), claimed(m));
  m.memory_length = m.context_length;
  EXPECT_EQ(executed(m), claimed(m));
}

TEST(ExecutedMacs, CoverLongLinearChunksAndExpertMlps) {
  config::ModelOptions m = testing::small_model();
  m.context_length = 150;  // more than two chunks of linear attention
  m.attention.score = "linear";
  m.mlp.kind = config::MlpKind::experts;
  EXPECT_EQ(executed(m), claimed(m));
  m.attention.position = "none";
  m.memory_length = 150;
  EXPECT_EQ(executed(m), claimed(m));
}

// The kinds of models without memory, with all parts that they allow.
TEST(ExecutedMacs, OfTheOtherKinds) {
  std::int64_t checked = 0;
  for (const testing::Choice& projection : testing::projections()) {
    for (const testing::Choice& score : testing::scores()) {
      for (const testing::Choice& composition : testing::compositions()) {
        for (const testing::Choice& position : testing::positions()) {
          config::ModelOptions m = testing::small_model();
          m.n_layers = 1;
          for (const testing::Choice* choice : {&projection, &score, &composition, &position}) {
            choice->set(m);
          }
          if (!testing::refusal(m).empty() || m.attention.score->is_recurrent() ||
              m.attention.position->needs_causal()) {
            continue;
          }
          const std::string name =
              projection.name + " / " + score.name + " / " + composition.name + " / " + position.name;
          m.kind = config::ModelKind::masked_language_model;
          const MaskedLanguageModel masked(m, 1);
          EXPECT_EQ(products_of([&](const nn::Context& c) { masked.logits(tokens_of(m), {}, c); }), claimed(m)) << name;
          m.kind = config::ModelKind::classifier;
          m.n_classes = 2;
          m.paired = true;
          const Classifier pairs(m, 1);
          EXPECT_EQ(products_of([&](const nn::Context& c) { pairs.logits(tokens_of(m), tokens_of(m), c); }), claimed(m))
              << name;
          m.n_classes = 0;
          m.paired = false;
          m.kind = config::ModelKind::encoder_decoder;
          m.n_decoder_layers = 2;
          const EncoderDecoder translator(m, 1);
          const SequencePair pair{.source = tokens_of(m), .target = tokens_of(m)};
          EXPECT_EQ(products_of([&](const nn::Context& c) { translator.logits(pair, c); }), claimed(m)) << name;
          ++checked;
        }
      }
    }
  }
  EXPECT_GE(checked, 619);
}

TEST(ExecutedMacs, OfImages) {
  config::ModelOptions m = testing::small_model();
  m.kind = config::ModelKind::vision;
  m.d_model = 8;
  m.image_size = 6;
  m.patch_size = 2;
  m.context_length = 9;
  m.n_classes = 3;
  m.attention.composition = "dynamic";
  m.attention.position = "sinusoidal";
  for (const std::int64_t hidden : {0, 5}) {
    m.d_head_hidden = hidden;
    const VisionTransformer model(m, 1);
    const at::Tensor images = at::randn({1, 3, 6, 6});
    EXPECT_EQ(products_of([&](const nn::Context& c) { model.logits(images, c); }), claimed(m)) << hidden;
  }
}

}  // namespace executed_macs_test
}  // namespace headroom::models
