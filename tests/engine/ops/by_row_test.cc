// Rows that do not depend on their company.
#include "engine/ops/by_row.h"

#include <gtest/gtest.h>

#include "gradients.h"
#include "headroom/core/error.h"

namespace headroom::ops {
namespace by_row_test {

using testing::relative_error;

// Sizes around vectors, parts of a matrix and columns that stay near; both ways that a matrix lies.
TEST(ByRow, ALinearRowIsWhatItIsAlone) {
  at::manual_seed(1);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kDouble}) {
    for (const auto& [in, out] : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {1, 1}, {7, 33}, {33, 7}, {100, 513}, {300, 1100}, {515, 97}}) {
      for (const bool turned : {false, true}) {
        for (const std::int64_t n : {2, 3, 8, 19}) {
          const at::Tensor x = at::randn({n, in}, type), b = at::randn({out}, type);
          const at::Tensor w = turned ? at::randn({out, in}, type).t() : at::randn({in, out}, type);
          const at::Tensor y = linear_by_row(x, w, b), bare = linear_by_row(x, w);
          for (std::int64_t row = 0; row < n; ++row) {
            const at::Tensor one = x.narrow(0, row, 1);
            ASSERT_TRUE(y.narrow(0, row, 1).equal(linear_by_row(one, w, b))) << in << " " << out << " " << type;
            ASSERT_TRUE(bare.narrow(0, row, 1).equal(linear_by_row(one, w))) << in << " " << out << " " << type;
          }
          const double bound = type == at::kDouble ? 1e-14 : type == at::kFloat ? 1e-6 : 4e-3;
          EXPECT_LE(relative_error(y, at::addmm(b.to(at::kDouble), x.to(at::kDouble), w.to(at::kDouble))), bound);
        }
      }
    }
  }
}

TEST(ByRow, AnExpertRowIsWhatItIsAlone) {
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
        const at::Tensor y = expert_linear_by_row(in);
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

TEST(ByRow, TheReferenceIsThatOfEachRow) {
  at::manual_seed(3);
  const at::Tensor x = at::randn({5, 40}), w = at::randn({40, 30});
  const at::Tensor y = linear_by_row(x, w, std::nullopt, Implementation::reference);
  for (std::int64_t row = 0; row < 5; ++row) {
    EXPECT_TRUE(y.narrow(0, row, 1).equal(x.narrow(0, row, 1).mm(w)));
  }
  EXPECT_THROW(linear_by_row(x.to(at::kDouble), w.to(at::kDouble), std::nullopt, Implementation::fused), UserError);
}

}  // namespace by_row_test
}  // namespace headroom::ops
