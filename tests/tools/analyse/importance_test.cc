#include <ATen/ops/cross_entropy_loss.h>
#include <gtest/gtest.h>

#include "small_model.h"

namespace headroom::analyse::importance_test {

const std::string kText = "composition!";

const std::string kComposed = "attention.composition=dynamic attention.n_heads=4 attention.compose_static=true ";

double loss_of(const store::OpenedModel& opened) {
  const ModelRunner runner(opened);
  InputBatch input;
  input.tokens = at::tensor(runner.tokenizer().encode(kText), at::kInt).to(at::kLong).unsqueeze(0);
  const std::int64_t n = input.tokens.size(1) - 1;
  const at::NoGradGuard no_graph;
  return at::cross_entropy_loss(runner.logits(input, nullptr)[0].narrow(0, 0, n).to(at::kDouble),
                                input.tokens[0].narrow(0, 1, n))
      .item<double>();
}

// The dynamic terms are products of these parameters.
void remove_dynamic_terms(const store::OpenedModel& opened, const std::string& layer) {
  int removed = 0;
  for (const nn::Parameter& p : opened.model->parameters().all()) {
    if (p.name.starts_with(layer) && (p.name.ends_with(".w2") || p.name.ends_with(".wg"))) {
      p.tensor.zero_();
      ++removed;
    }
  }
  EXPECT_GT(removed, 0);
}

TEST(Importance, IsTheRiseOfTheLossWithoutALayersDynamicTerms) {
  for (const char* stages : {R"(["pre","post"])", R"(["pre"])", R"(["post"])"}) {
    const std::string options = kComposed + "attention.compose=" + stages;
    const store::OpenedModel opened = small::small_model(options);
    const Json metrics = small::found(opened, "importance", kText).metrics;
    const double loss = loss_of(opened);
    EXPECT_NEAR(metrics.at("loss").get<double>(), loss, 1e-5);
    for (const std::string layer : {"layer0.attention", "layer1.attention"}) {
      const store::OpenedModel without = small::small_model(options);
      remove_dynamic_terms(without, layer);
      const double rise = loss_of(without) - loss;
      EXPECT_NEAR(metrics.at("rise").at(layer).get<double>(), rise, 1e-5) << layer;
      EXPECT_GT(std::abs(rise), 1e-3) << layer;
      // Terms that are already removed have no importance.
      EXPECT_NEAR(small::found(without, "importance", kText).metrics.at("rise").at(layer).get<double>(), 0.0, 1e-6);
    }
  }
}

TEST(Importance, IsRefusedWithoutDynamicTerms) {
  const store::OpenedModel opened = small::small_model(kComposed + "attention.composition=static");
  EXPECT_THROW(small::found(opened, "importance", kText), UserError);
}

}  // namespace headroom::analyse::importance_test
