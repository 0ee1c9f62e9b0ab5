#include "tools/bench/timing.h"

#include <gtest/gtest.h>

#include "headroom/ops/attention.h"
#include "headroom/ops/head_map.h"
#include "headroom/ops/linear.h"

namespace headroom::bench::demand_test {

struct Open : at::ObserverContext {
  explicit Open(const at::RecordFunction& function) : call(function) {}
  Call call;
};
std::map<std::string, Demand>* seen = nullptr;

// Returns the demand of each operator that `work` calls, by name.
template <class Work>
std::map<std::string, Demand> demands(const Work& work) {
  std::map<std::string, Demand> all;
  seen = &all;
  const at::CallbackHandle handle =
      at::addThreadLocalCallback(at::RecordFunctionCallback(
                                     [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
                                       return std::make_unique<Open>(function);
                                     },
                                     [](const at::RecordFunction& function, at::ObserverContext* open) {
                                       (*seen)[function.name()] += static_cast<Open*>(open)->call.end(function);
                                     })
                                     .needsInputs(true)
                                     .needsOutputs(true));
  work();
  at::removeCallback(handle);
  return all;
}

TEST(Demand, MatmulsReadTheirOperandsAndWriteTheirResult) {
  const at::Tensor a = at::randn({3, 5}), b = at::randn({5, 7});
  const Demand mm = demands([&] { a.mm(b); }).at("aten::mm");
  EXPECT_EQ(mm.flops, 2.0 * 3 * 5 * 7);
  EXPECT_EQ(mm.bytes, 4.0 * (15 + 35 + 21));
  const at::Tensor c = at::randn({2, 3, 5}), d = at::randn({2, 5, 7});
  EXPECT_EQ(demands([&] { c.bmm(d); }).at("aten::bmm").flops, 2.0 * 2 * 3 * 5 * 7);
  EXPECT_EQ(demands([&] { at::addmm(at::zeros({7}), a, b); }).at("aten::addmm").flops, 2.0 * 3 * 5 * 7);
}

TEST(Demand, ViewsMoveNoBytes) {
  const at::Tensor a = at::randn({4, 6});
  const auto views = demands([&] {
    a.view({6, 4}).t().narrow(0, 1, 2);
    at::empty({1000});
  });
  for (const auto& [name, demand] : views) {
    EXPECT_EQ(demand.bytes, 0.0) << name;
  }
  const at::Tensor wide = at::ones({1}).expand({100});
  EXPECT_EQ(demands([&] { at::add(wide, wide); }).at("aten::add").bytes, 4.0 + 4.0 + 400.0);
}

TEST(Demand, InPlaceReadsAndWrites) {
  at::Tensor a = at::randn({10}), b = at::randn({10});
  EXPECT_EQ(demands([&] { a.add_(b); }).at("aten::add_").bytes, 120.0);
  EXPECT_EQ(demands([&] { a.copy_(b); }).at("aten::copy_").bytes, 80.0);
}

// The forward pass has two matmuls over the visible pairs, the backward pass five.
TEST(Demand, AttentionCountsVisiblePairs) {
  const std::int64_t b = 2, h = 3, t = 9, e = 8;
  const at::Tensor q = at::randn({b, h, t, e}).requires_grad_(true), k = at::randn({b, h, t, e}),
                   v = at::randn({b, h, t, e});
  for (const std::int64_t window : {0, 4}) {
    const auto all = demands([&] {
      ops::attention({.q = q, .k = k, .v = v, .mask = {.window = window}}, Implementation::fused).sum().backward();
    });
    double pairs = 0.0;
    for (std::int64_t i = 0; i < t; ++i) {
      for (std::int64_t j = 0; j <= i; ++j) {
        pairs += window == 0 || i - j < window ? 1.0 : 0.0;
      }
    }
    const double product = 2.0 * pairs * static_cast<double>(b * h * e);
    // An operator is recorded twice: above autograd and below.
    EXPECT_EQ(all.at("headroom::attention_fused").flops, 2.0 * 2.0 * product) << window;
    EXPECT_EQ(all.at("headroom::attention_fused_backward").flops, 5.0 * product) << window;
  }
}

TEST(Demand, ExpertsCountOnlySelectedOnes) {
  const at::Tensor x = at::randn({6, 8}), bank = at::randn({4, 8, 5}), index = at::zeros({6, 2, 3}, at::kLong);
  const auto all = demands([&] {
    ops::expert_linear({.input = x, .bank = bank, .index = index, .weight = at::ones({6, 2, 3})},
                       Implementation::fused);
  });
  EXPECT_EQ(all.at("headroom::expert_linear_fused").flops, 2.0 * 2.0 * 6 * 2 * 3 * 8 * 5);
}

TEST(Demand, FactorsOfHeadMapsMultiplyEachWeightByEachRow) {
  const auto rand = [](at::IntArrayRef shape) { return at::rand(shape); };
  const ops::HeadMapWeights weights{.w1 = {rand({2, 5, 3}), rand({2, 5, 3})},
                                    .w2 = {rand({2, 3, 2, 1, 4}), rand({2, 3, 2, 1, 4})},
                                    .gate = {rand({5, 8}), rand({5, 8})}};
  const auto all = demands([&] { ops::head_map_factors(rand({7, 5}), weights); });
  EXPECT_EQ(all.at("headroom::head_map_factors_fused").flops, 2.0 * 7 * 2 * (2 * 5 * 3 + 2 * 3 * 2 * 4 + 5 * 8));
}

}  // namespace headroom::bench::demand_test
