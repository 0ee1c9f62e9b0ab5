#include "attention_cases.h"
#include "gradients.h"
#include "one_thread.h"

namespace headroom::ops::mixture_test {

using testing::evaluate;

constexpr AttentionCase kSmall{2, 4, 2, 5, 7, 3};

AttentionInputs random_inputs(AttentionCase c = kSmall, std::int64_t n = 2, at::ScalarType type = at::kDouble) {
  c.mixture = MixtureCase{.n = n, .coefficient = 0.3, .prior = MixtureCase::per_key};
  return c.inputs({type});
}

void expect_defined_extremes(const AttentionCase& z, at::ScalarType type) {
  at::manual_seed(5);
  AttentionInputs in = random_inputs(z, 2, type);
  in.q = in.q * 1e4;  // distances exceed the range of exp()
  EXPECT_TRUE(at::isfinite(attention(in)).all().item<bool>());
  in.mixture->epsilon = 0.1;
  EXPECT_EQ(attention(in).abs().max().item<double>(), 0.0);
  in.mixture->epsilon = 0.0;
  in.mixture->prior->zero_();  // all keys have weight 0
  EXPECT_EQ(attention(in).abs().max().item<double>(), 0.0);
  in.mixture->prior.reset();
  in.mask.valid_keys = at::zeros({z.b, z.s}, at::kBool);
  const auto masked = evaluate([&](const auto& x) { return attention(with_leaves(in, x)); }, leaves_of(in));
  EXPECT_EQ(masked.value.abs().max().item<double>(), 0.0);
  for (const at::Tensor& gradient : masked.gradients) {
    EXPECT_EQ(gradient.abs().max().item<double>(), 0.0);
  }
}

TEST(Mixture, ExtremesHaveDefinedResults) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    expect_defined_extremes(kSmall, type);
    expect_defined_extremes({2, 4, 2, 9, 11, 3}, type);  // enough queries for blocks
  }
}

TEST(Mixture, RefusesShapesThatDoNotFit) {
  AttentionInputs in = random_inputs();
  in.mixture->coefficient = at::ones({3}, at::kDouble);
  EXPECT_THROW(attention(in), Error);
  in = random_inputs();
  in.mixture->prior = at::ones({2, 4, 7}, at::kDouble);
  EXPECT_THROW(attention(in), Error);
  in = random_inputs();
  in.mixture->shift = at::ones({2, 2, 1, 3}, at::kDouble);
  EXPECT_THROW(attention(in), Error);
  EXPECT_THROW(attention(random_inputs(), Implementation::fused), UserError);
}

TEST(RowTerms, OtherDtypesUseTheReference) {
  const at::Tensor t = at::randn({1, 2, 3, 4}, at::kDouble), directions = at::randn({2, 2, 4}, at::kDouble);
  const at::Tensor terms = row_terms(t, directions);
  EXPECT_EQ(terms.scalar_type(), at::kDouble);
  EXPECT_EQ(terms.sizes(), at::IntArrayRef({1, 2, 3, 3}));
  EXPECT_LE(testing::relative_error(terms[0][1][2], t[0][1].matmul(directions[1][1])), 1e-15);
  EXPECT_LE(testing::relative_error(terms[0][1][0], t[0][1].square().sum(1)), 1e-15);
}

}  // namespace headroom::ops::mixture_test
