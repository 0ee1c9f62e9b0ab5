// The multiply-accumulates that `cost` says a forward pass executes are those that its matrix products really do.
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include "headroom/core/error.h"
#include "headroom/cost/cost.h"
#include "headroom/models/language_model.h"
#include "nn/combinations.h"
#include "one_thread.h"

namespace headroom::models {
namespace {

std::int64_t counted = 0;

// m x k times k x n, in a batch or not: the last two operands' shapes tell.
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

std::int64_t executed(const config::ModelOptions& options) {
  const at::NoGradGuard no_grad;
  const LanguageModel model(options, 1, at::kFloat);
  nn::Context context;
  context.implementation = Implementation::reference;
  Memory memory;
  at::manual_seed(1);
  const auto chunk = [&] { return at::randint(options.vocabulary_size, {1, options.context_length}, at::kLong); };
  if (options.memory_length > 0) {
    model.logits(chunk(), memory, context);  // fills the memory
  }
  counted = 0;
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(count_product).needsInputs(true));
  model.logits(chunk(), memory, context);
  at::removeCallback(handle);
  return counted;
}

std::int64_t claimed(const config::ModelOptions& options) {
  const cost::ExecutedCost cost = cost::executed_cost(options, 1);
  return cost.attention_macs + cost.mlp_macs + cost.head_macs;
}

TEST(ExecutedMacs, AreThoseOfTheProductsThatRun) {
  for (const testing::Choice& projection : testing::projections()) {
    for (const testing::Choice& score : testing::scores()) {
      for (const testing::Choice& composition : testing::compositions()) {
        for (const testing::Choice& mask : testing::masks()) {
          for (const testing::Choice& position : testing::positions()) {
            config::ModelOptions m = testing::small_model();
            for (const testing::Choice* choice : {&projection, &score, &composition, &mask, &position}) {
              choice->set(m);
            }
            if (m.kind != config::ModelKind::language_model || !testing::refusal(m).empty()) {
              continue;
            }
            EXPECT_EQ(executed(m), claimed(m)) << projection.name << " / " << score.name << " / " << composition.name
                                               << " / " << mask.name << " / " << position.name;
          }
        }
      }
    }
  }
}

TEST(ExecutedMacs, CoverLongLinearChunksAndExpertMlps) {
  config::ModelOptions m = testing::small_model();
  m.context_length = 150;  // more than two chunks of linear attention
  m.attention.score = config::Score::linear;
  m.mlp.kind = config::MlpKind::experts;
  EXPECT_EQ(executed(m), claimed(m));
  m.attention.position = config::Position::none;
  m.memory_length = 150;
  EXPECT_EQ(executed(m), claimed(m));
}

}  // namespace
}  // namespace headroom::models
