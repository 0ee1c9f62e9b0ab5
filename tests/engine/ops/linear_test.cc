#include "headroom/ops/linear.h"

#include <ATen/Parallel.h>

#include <mutex>
#include <set>
#include <thread>

#include "engine/ops/linear/cases.h"
#include "gradients.h"
#include "headroom/core/error.h"

namespace headroom::ops {
namespace linear_test {

using testing::evaluate;
using testing::expect_close;

TEST(Linear, ThreadsDoNotChangeTheResult) {
  at::manual_seed(3);
  for (LinearCase s : {LinearCase{517, 300, 129}, LinearCase{1, 523, 401}}) {
    for (const Layout layout : {Layout::dense, Layout::swapped}) {
      s.layout = layout;
      const Problem problem = s.problem({});
      testing::expect_threads_change_nothing([&](const auto& x) { return problem.run(x, Implementation::fused); },
                                             problem.leaves, s.name());
    }
  }
}

// A gradient that is one number expanded, and a matrix that is a part of a wider one.
TEST(Linear, TakesMatricesWithGaps) {
  at::manual_seed(4);
  const auto value = [](Implementation impl) {
    return [impl](const std::vector<at::Tensor>& x) {
      return ops::linear(x[0], x[1].narrow(1, 3, 40), std::nullopt, impl).sum();
    };
  };
  const std::vector<at::Tensor> in = {at::randn({33, 50}), at::randn({50, 64})};
  expect_close(evaluate(value(Implementation::fused), in), evaluate(value(Implementation::reference), in), 5e-6,
               "gaps");
}

TEST(Linear, TakesABiasWithGaps) {
  at::manual_seed(6);
  const at::Tensor x = at::randn({33, 50}), w = at::randn({50, 64});
  for (const at::Tensor& bias : {at::randn({1}).expand({64}), at::randn({64, 3}).select(1, 1)}) {
    for (const std::int64_t rows : {33, 1}) {
      const at::Tensor part = x.narrow(0, 0, rows);
      EXPECT_LE(testing::relative_error(ops::linear(part, w, bias, Implementation::fused), at::addmm(bias, part, w)),
                5e-6);
    }
  }
}

// The result has the matrix's dtype; the rows are kept, and get their gradient, in their own.
TEST(Linear, TakesNarrowerRows) {
  at::manual_seed(5);
  const at::Tensor x = at::randn({33, 41}).to(at::kBFloat16), w = at::randn({41, 7});
  for (const Implementation impl : {Implementation::fused, Implementation::reference}) {
    const at::Tensor rows = x.detach().clone().requires_grad_(true), matrix = w.detach().clone().requires_grad_(true);
    const at::Tensor y = ops::linear(rows, matrix, std::nullopt, impl), weight = at::randn_like(y);
    EXPECT_EQ(y.scalar_type(), at::kFloat);
    EXPECT_LE(testing::relative_error(y.detach(), x.to(at::kDouble).mm(w.to(at::kDouble))), 1e-6);
    const auto grads = torch::autograd::grad({y}, {rows, matrix}, {weight});
    EXPECT_TRUE(at::equal(grads[0], weight.mm(w.t()).to(at::kBFloat16)));
    EXPECT_LE(testing::relative_error(grads[1], x.to(at::kDouble).t().mm(weight.to(at::kDouble))), 1e-6);
  }
}

TEST(Linear, RefusesWhatDoesNotFit) {
  EXPECT_THROW(ops::linear(at::ones({2, 3}), at::ones({4, 5})), Error);
  EXPECT_THROW(ops::linear(at::ones({2, 3}), at::ones({3, 5}), at::ones({4})), Error);
  EXPECT_THROW(ops::linear(at::ones({2, 3}, at::kDouble), at::ones({3, 5}, at::kDouble), {}, Implementation::fused),
               UserError);
}

// at::parallel_for is a template that runs on one thread, without a word, where it is compiled without OpenMP.
TEST(Threads, AreUsedByParallelLoops) {
  const int before = at::get_num_threads();
  at::set_num_threads(3);
  std::mutex mutex;
  std::set<std::thread::id> seen;
  at::parallel_for(0, 3, 1, [&](std::int64_t, std::int64_t) {
    const std::lock_guard lock(mutex);
    seen.insert(std::this_thread::get_id());
  });
  at::set_num_threads(before);
  EXPECT_EQ(seen.size(), 3);
}

}  // namespace linear_test
}  // namespace headroom::ops
