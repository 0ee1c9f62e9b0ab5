#include "headroom/ops/linear.h"

#include <mutex>
#include <thread>

#include "engine/ops/linear/dense_matmul.h"
#include "engine/ops/many_rows.h"
#include "gradients.h"
#include "headroom/core/error.h"
#include "linear_cases.h"

namespace headroom::ops::linear_test {

using testing::evaluate;
using testing::expect_close;
using testing::relative_error;

TEST(Linear, ThreadsDoNotChangeTheResult) {
  at::manual_seed(3);
  // In the last case, the weight gradient sums such long columns that oneDNN would divide them among threads.
  for (LinearCase s : {LinearCase{517, 300, 129}, LinearCase{1, 523, 401}, LinearCase{4096, 64, 64}}) {
    for (const Layout layout : {Layout::dense, Layout::swapped}) {
      s.layout = layout;
      const Problem problem = s.problem({});
      testing::expect_threads_change_nothing([&](const auto& x) { return problem.run(x, Implementation::fused); },
                                             problem.leaves, s.name());
    }
  }
}

// The incoming gradient is an expanded scalar, and the matrix is part of a wider one.
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

// The result has the matrix's dtype; x is saved in its original dtype, which is also its gradient's.
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

TEST(Linear, RefusesMismatchedInputs) {
  EXPECT_THROW(ops::linear(at::ones({2, 3}), at::ones({4, 5})), Error);
  EXPECT_THROW(ops::linear(at::ones({2, 3}), at::ones({3, 5}), at::ones({4})), Error);
  EXPECT_THROW(ops::linear(at::ones({2, 3}, at::kDouble), at::ones({3, 5}, at::kDouble), {}, Implementation::fused),
               UserError);
}

// at::parallel_for is a template that silently runs on one thread if it is compiled without OpenMP.
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

// The sizes are near SIMD widths, parts of a matrix and blocks of columns; matrices are row-major and transposed.
TEST(BatchInvariant, ALinearRowEqualsItsResultAlone) {
  at::manual_seed(1);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kDouble}) {
    for (const auto& [in, out] : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {1, 1}, {7, 33}, {33, 7}, {100, 513}, {300, 1100}, {515, 97}}) {
      for (const bool turned : {false, true}) {
        for (const std::int64_t n : {2, 3, 8, 19}) {
          const at::Tensor x = at::randn({n, in}, type), b = at::randn({out}, type);
          const at::Tensor w = turned ? at::randn({out, in}, type).t() : at::randn({in, out}, type);
          const at::Tensor y = linear_batch_invariant(x, w, b), bare = linear_batch_invariant(x, w);
          for (std::int64_t row = 0; row < n; ++row) {
            const at::Tensor one = x.narrow(0, row, 1);
            ASSERT_TRUE(y.narrow(0, row, 1).equal(linear_batch_invariant(one, w, b)))
                << in << " " << out << " " << type;
            ASSERT_TRUE(bare.narrow(0, row, 1).equal(linear_batch_invariant(one, w)))
                << in << " " << out << " " << type;
          }
          const double bound = type == at::kDouble ? 1e-14 : type == at::kFloat ? 1e-6 : 4e-3;
          EXPECT_LE(relative_error(y, at::addmm(b.to(at::kDouble), x.to(at::kDouble), w.to(at::kDouble))), bound);
        }
      }
    }
  }
}

TEST(BatchInvariant, SeveralMatricesGiveWhatEachGives) {
  at::manual_seed(3);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kDouble}) {
    const std::vector<MatrixAndBias> matrices = {{at::randn({133, 512}, type), at::randn({512}, type)},
                                                 {at::randn({133, 7}, type), std::nullopt},
                                                 {at::randn({133, 1376}, type), std::nullopt}};
    std::vector<MatrixAndBias> turned = matrices;
    turned[1].matrix = at::randn({40, 133}, type).t();
    for (const std::vector<MatrixAndBias>& all : {matrices, turned}) {
      for (const std::int64_t n : {1, 2, 8, 19}) {
        const at::Tensor x = at::randn({n, 133}, type);
        const std::vector<at::Tensor> y = linear_batch_invariant_of_each(x, all);
        ASSERT_EQ(y.size(), all.size());
        for (std::size_t i = 0; i < all.size(); ++i) {
          EXPECT_TRUE(y[i].equal(linear_batch_invariant(x, all[i].matrix, all[i].bias)))
              << n << " " << i << " " << type;
        }
      }
    }
  }
}

TEST(BatchInvariant, AnExpertRowEqualsItsResultAlone) {
  at::manual_seed(2);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kDouble}) {
    for (const bool per_head : {false, true}) {
      for (const bool sum_heads : {false, true}) {
        constexpr std::int64_t kRows = 70, kHeads = 3, kChoices = 2, kMatrices = 5;
        ExpertLinearInputs in;
        in.input = per_head ? at::randn({kRows, kHeads, 37}, type) : at::randn({kRows, 37}, type);
        in.bank = at::randn({kMatrices, 37, 29}, type);
        in.index = std::get<1>(at::rand({kRows, kHeads, kMatrices}).topk(kChoices, -1));
        in.weight = at::rand({kRows, kHeads, kChoices});
        in.sum_heads = sum_heads;
        const at::Tensor y = expert_linear_batch_invariant(in);
        EXPECT_LE(relative_error(y, expert_linear(in)), type == at::kDouble ? 1e-14 : type == at::kFloat ? 1e-6 : 1e-2);
        for (std::int64_t row = 0; row < kRows; ++row) {
          ExpertLinearInputs one = in;
          one.input = in.input.narrow(0, row, 1);
          one.index = in.index.narrow(0, row, 1);
          one.weight = in.weight->narrow(0, row, 1);
          ASSERT_TRUE(y.narrow(0, row, 1).equal(expert_linear(one))) << type << " " << per_head << " " << sum_heads;
        }
      }
    }
  }
}

TEST(BatchInvariant, TheReferenceMatchesEachRow) {
  at::manual_seed(3);
  const at::Tensor x = at::randn({5, 40}), w = at::randn({40, 30});
  const at::Tensor y = linear_batch_invariant(x, w, std::nullopt, Implementation::reference);
  for (std::int64_t row = 0; row < 5; ++row) {
    EXPECT_TRUE(y.narrow(0, row, 1).equal(x.narrow(0, row, 1).mm(w)));
  }
  EXPECT_THROW(linear_batch_invariant(x.to(at::kDouble), w.to(at::kDouble), std::nullopt, Implementation::fused),
               UserError);
}

}  // namespace headroom::ops::linear_test
