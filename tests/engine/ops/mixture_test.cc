#include "attention_cases.h"
#include "engine/ops/attention/attention_operator.h"
#include "gradients.h"
#include "headroom/core/error.h"
#include "one_thread.h"

namespace headroom::ops {
namespace mixture_test {

using testing::evaluate;
using testing::relative_error;

constexpr AttentionCase kSmall{2, 4, 2, 5, 7, 3};

AttentionInputs random_inputs(AttentionCase c = kSmall, std::int64_t n = 2, at::ScalarType type = at::kDouble) {
  c.mixture = MixtureCase{.n = n, .coefficient = 0.3, .prior = MixtureCase::per_key};
  return c.inputs({type});
}

// o_i = sum_j w_ij v_j / (sum_j w_ij + epsilon) without logarithms or shifts, causal.
at::Tensor by_hand(const AttentionInputs& in) {
  const Mixture& mixture = *in.mixture;
  const std::int64_t h = in.q.size(1), t = in.q.size(2), s = in.k.size(2), share = h / in.k.size(1);
  const auto every = [&](const at::Tensor& x) { return x.repeat_interleave(share, 1); };
  at::Tensor w;
  for (std::int64_t r = 0; r < mixture.n_components(); ++r) {
    const at::Tensor key = mixture.shift ? in.k - mixture.shift->select(0, r)
                           : r == 0      ? in.k
                                         : mixture.more_keys[static_cast<std::size_t>(r - 1)];
    const at::Tensor k = every(key);
    at::Tensor score = in.q.matmul(k.transpose(2, 3)) * in.scale;
    if (mixture.coefficient) {
      const at::Tensor difference = in.q.unsqueeze(3) - k.unsqueeze(2);
      score = difference.square().sum(-1) * -(*mixture.coefficient)[r];
    }
    at::Tensor weight = score.exp();
    if (mixture.prior) {
      weight = weight * mixture.prior->select(0, r).repeat_interleave(share, 0).unsqueeze(1);
    }
    w = !w.defined() ? weight : mixture.maximum ? at::maximum(w, weight) : w + weight;
  }
  w = w.tril(s - t);
  return (w / (w.sum(-1, true) + mixture.epsilon)).matmul(every(in.v));
}

TEST(Mixture, EqualsItsDefinition) {
  for (const std::int64_t n : {1, 2, 5, 9}) {  // also more components than keys
    at::manual_seed(n);
    AttentionInputs in = random_inputs(kSmall, n);
    EXPECT_LE(relative_error(attention(in), by_hand(in)), 1e-13) << n;
    in.mixture->epsilon = 0.3;
    EXPECT_LE(relative_error(attention(in), by_hand(in)), 1e-13) << n;
    in.mixture->coefficient.reset();
    EXPECT_LE(relative_error(attention(in), by_hand(in)), 1e-13) << n;
    in.mixture->epsilon = 0.0;
    in.mixture->prior.reset();
    in.mixture->maximum = true;
    EXPECT_LE(relative_error(attention(in), by_hand(in)), 1e-13) << n;
    in.mixture->more_keys.clear();
    in.mixture->shift = at::randn({n, 2, 1, 3}, at::kDouble);
    EXPECT_LE(relative_error(attention(in), by_hand(in)), 1e-13) << n;
    in.mixture->shift = at::randn({n, 2, 7, 3}, at::kDouble);
    EXPECT_LE(relative_error(attention(in), by_hand(in)), 1e-13) << n;
  }
}

TEST(Mixture, GradientsEqualThoseOfItsDefinition) {
  at::manual_seed(3);
  const AttentionInputs like = random_inputs(kSmall, 3);
  const auto with = [&](const std::vector<at::Tensor>& x) {
    AttentionInputs in = with_leaves(like, x);
    in.mixture->coefficient = x.back();
    return in;
  };
  std::vector<at::Tensor> leaves = leaves_of(like);
  leaves.push_back(*like.mixture->coefficient);
  testing::expect_close(evaluate([&](const auto& x) { return attention(with(x)); }, leaves),
                        evaluate([&](const auto& x) { return by_hand(with(x)); }, leaves), 1e-12, "mixture");
}

TEST(Mixture, AComponentWithoutWeightHasStillADerivative) {
  at::manual_seed(4);
  AttentionInputs like = random_inputs();
  like.mixture->prior->select(0, 1).zero_();
  const auto run = [&](bool reference) {
    return evaluate(
        [&](const std::vector<at::Tensor>& x) {
          AttentionInputs in = like;
          in.mixture->prior = x[0];
          return reference ? by_hand(in) : attention(in);
        },
        {*like.mixture->prior});
  };
  testing::expect_close(run(false), run(true), 1e-12, "prior 0");
}

void expect_defined_extremes(const AttentionCase& z, at::ScalarType type) {
  at::manual_seed(5);
  AttentionInputs in = random_inputs(z, 2, type);
  in.q = in.q * 1e4;  // distances far beyond the range of exp()
  EXPECT_TRUE(at::isfinite(attention(in)).all().item<bool>());
  in.mixture->epsilon = 0.1;
  EXPECT_EQ(attention(in).abs().max().item<double>(), 0.0);
  in.mixture->epsilon = 0.0;
  in.mixture->prior->zero_();  // no key has any weight
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

}  // namespace mixture_test
}  // namespace headroom::ops
