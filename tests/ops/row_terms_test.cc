#include "ops/attention/row_terms.h"

#include "gradients.h"

namespace headroom::ops {
namespace row_terms_test {

using testing::evaluate;
using testing::expect_close;
using testing::random_tensor;

auto run(Implementation implementation) {
  return [implementation](const std::vector<at::Tensor>& x) { return row_terms(x[0], x[1], implementation); };
}

// With numbers that single precision holds exactly, so that the reference in float64 sees the same.
void compare(at::ScalarType type, double bound) {
  for (const auto& [b, heads, n, e, directions] : std::vector<std::array<std::int64_t, 5>>{
           {1, 1, 1, 1, 0}, {2, 3, 5, 7, 0}, {2, 2, 17, 13, 3}, {1, 4, 33, 64, 1}, {3, 1, 70, 41, 2}}) {
    for (const bool strided : {false, true}) {
      at::manual_seed(n);
      const std::vector<at::Tensor> in = {random_tensor({b, heads, n, e}, type, strided),
                                          random_tensor({heads, directions, e}, at::kFloat)};
      const auto got = evaluate(run(Implementation::automatic), in);
      EXPECT_EQ(got.value.scalar_type(), at::kFloat);
      expect_close(got, evaluate(run(Implementation::reference), testing::in_double(in)), bound,
                   fmt::format("B{} X{} n{} e{} R{}", b, heads, n, e, directions));
    }
  }
}

// Sums of e <= 64 products (of B n <= 210 for a direction's gradient), each rounded to 2^-24.
TEST(RowTerms, EqualTheReferenceInFloat) {
  compare(at::kFloat, 2e-6);
}
// Sums are those of float32; the rows' gradient is rounded to 8 bits.
TEST(RowTerms, EqualTheReferenceInBfloat16) {
  compare(at::kBFloat16, 1.0 / 256);
}

TEST(RowTerms, OtherNumbersTakeTheReference) {
  const at::Tensor t = at::randn({1, 2, 3, 4}, at::kDouble), directions = at::randn({2, 2, 4}, at::kDouble);
  const at::Tensor terms = row_terms(t, directions);
  EXPECT_EQ(terms.scalar_type(), at::kDouble);
  EXPECT_EQ(terms.sizes(), at::IntArrayRef({1, 2, 3, 3}));
  EXPECT_LE(testing::relative_error(terms[0][1][2], t[0][1].matmul(directions[1][1])), 1e-15);
  EXPECT_LE(testing::relative_error(terms[0][1][0], t[0][1].square().sum(1)), 1e-15);
}

}  // namespace row_terms_test
}  // namespace headroom::ops
