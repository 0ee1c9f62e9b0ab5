// A sink in each head's softmax, against its definition and, fused, against the reference in double precision.
#include <cmath>
#include <limits>

#include "headroom/core/error.h"
#include "sequences.h"

namespace headroom::ops {
namespace sink_test {

using testing::bfloat16::Sizes;
using testing::sequences::all_kinds;
using testing::sequences::Kind;

// Dot products of every kind, with a sink for each head that is about as large as the scores.
std::vector<std::pair<std::string, AttentionInputs>> cases(at::ScalarType type) {
  const std::vector<Sizes> sizes = {{2, 4, 2, 83, 83, 13},
                                    {1, 4, 4, 140, 140, 8, true, 80},
                                    {2, 2, 1, 5, 5, 16},
                                    {2, 6, 6, 70, 70, 24, true, 0, true},
                                    {2, 3, 3, 67, 67, 7, false, 0, true}};
  std::vector<std::pair<std::string, AttentionInputs>> all;
  for (const Sizes& z : sizes) {
    for (const Kind& kind : all_kinds()) {
      if (kind.scores == Kind::dot && (z.causal || !kind.relative)) {
        at::manual_seed(5);
        AttentionInputs in = testing::sequences::sequence(z, kind, type);
        in.sink = at::randn({z.h}) * 2.0;
        all.emplace_back(z.name() + kind.name(), in);
      }
    }
  }
  return all;
}

// p_ij = exp(s_ij) / (exp(b_h) + sum_j exp(s_ij)), one query at a time.
TEST(Sink, IsItsDefinition) {
  at::manual_seed(1);
  const at::TensorOptions type = at::kDouble;
  AttentionInputs in{
      .q = at::randn({2, 4, 5, 3}, type), .k = at::randn({2, 2, 7, 3}, type), .v = at::randn({2, 2, 7, 3}, type)};
  in.sink = at::randn({4}, type);
  at::Tensor expected = at::zeros({2, 4, 5, 3}, type);
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t h = 0; h < 4; ++h) {
      for (std::int64_t i = 0; i < 5; ++i) {
        const std::int64_t n = 7 - 5 + i + 1;
        const at::Tensor weight = in.k[b][h / 2].narrow(0, 0, n).matmul(in.q[b][h][i]).exp();
        expected[b][h][i] = weight.matmul(in.v[b][h / 2].narrow(0, 0, n)) / (weight.sum() + (*in.sink)[h].exp());
      }
    }
  }
  EXPECT_LE(testing::relative_error(attention_reference(in), expected), 1e-14);
}

TEST(Sink, FusedEqualsTheReference) {
  for (const auto& [name, in] : cases(at::kFloat)) {
    // The bound of FusedHeads.EveryCombinationEqualsTheReference.
    testing::sequences::expect_fused_equals_reference(in, 5e-5, name);
  }
}

TEST(Sink, Bfloat16IsRoundedFloat) {
  for (const auto& [name, in] : cases(at::kBFloat16)) {
    if (in.pre) {
      continue;  // sums over heads: more is rounded
    }
    // Results and the weights of the values are rounded once each, to 8 bits.
    const at::Tensor exact = testing::sequences::evaluate_in(in, at::kDouble, Implementation::reference).value;
    const double most = in.v.abs().max().item<double>();
    EXPECT_LE((attention(in, Implementation::fused).to(at::kDouble) - exact).abs().max().item<double>(),
              3.0 / 256 * most)
        << name;
  }
}

TEST(Sink, ThreadsChangeNothing) {
  for (const auto& [name, given] : cases(at::kFloat)) {
    AttentionInputs in = given;
    std::vector<at::Tensor> leaves;
    for (const at::Tensor* leaf : testing::sequences::leaves_of(in)) {
      leaves.push_back(*leaf);
    }
    testing::expect_threads_change_nothing(
        [&](const std::vector<at::Tensor>& x) {
          std::size_t i = 0;
          for (at::Tensor* leaf : testing::sequences::leaves_of(in)) {
            *leaf = x[i++];
          }
          return attention(in, Implementation::fused);
        },
        leaves, name);
  }
}

// Far below the scores it changes nothing, far above them nothing is left.
TEST(Sink, FarFromTheScores) {
  for (const bool few : {false, true}) {
    at::manual_seed(2);
    const at::Tensor x = at::randn({1, 2, few ? 3 : 70, 4});
    AttentionInputs in{.q = x, .k = x, .v = x};
    const at::Tensor plain = attention(in, Implementation::fused);
    for (const double far : {-200.0, -std::numeric_limits<double>::infinity()}) {
      in.sink = at::full({2}, far);
      EXPECT_TRUE(attention(in, Implementation::fused).equal(plain)) << far;
      EXPECT_LE(testing::relative_error(attention_reference(in), plain), 1e-6) << far;
    }
    for (const double far : {200.0, 3e38}) {
      const auto run = [&](Implementation implementation) {
        in.sink = at::full({2}, far);
        return testing::sequences::evaluate_in(in, at::kFloat, implementation);
      };
      for (const Implementation implementation : {Implementation::fused, Implementation::reference}) {
        const testing::Evaluated got = run(implementation);
        EXPECT_LE(got.value.abs().max().item<double>(), 1e-30) << far;
        for (const at::Tensor& gradient : got.gradients) {
          EXPECT_LE(gradient.abs().max().item<double>(), 1e-30) << far;
        }
      }
    }
  }
}

TEST(Sink, ARowThatSeesNothingIsZero) {
  at::manual_seed(3);
  for (const std::int64_t t : {3, 20}) {
    const at::Tensor x = at::randn({2, 2, t, 4});
    AttentionInputs in{.q = x, .k = x, .v = x};
    in.mask = {.causal = false, .valid_keys = at::ones({2, t}, at::kBool)};
    in.mask.valid_keys->select(0, 1).fill_(false);
    in.sink = at::randn({2});
    for (const Implementation implementation : {Implementation::fused, Implementation::reference}) {
      const testing::Evaluated got = testing::sequences::evaluate_in(in, at::kFloat, implementation);
      EXPECT_EQ(got.value[1].abs().max().item<double>(), 0.0);
      for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(got.gradients[i][1].abs().max().item<double>(), 0.0) << i;
      }
      EXPECT_TRUE(got.gradients[3].isfinite().all().item<bool>());
    }
  }
}

// Its weight is there beside a mixture's epsilon, in the reference.
TEST(Sink, WithAMixture) {
  at::manual_seed(4);
  const at::Tensor x = at::randn({1, 2, 6, 4}, at::kDouble);
  AttentionInputs in{.q = x, .k = x, .v = x, .mixture = Mixture{.more_keys = {x + 1.0}, .epsilon = 0.5}};
  in.sink = at::full({2}, std::log(0.25), at::kDouble);
  AttentionInputs together = in;
  together.sink.reset();
  together.mixture->epsilon = 0.75;
  EXPECT_LE(testing::relative_error(attention_reference(in), attention_reference(together)), 1e-14);
  for (at::Tensor* t : testing::sequences::leaves_of(in)) {
    *t = t->to(at::kFloat);
  }
  EXPECT_THROW(attention(in, Implementation::fused), MisuseError);
}

TEST(Sink, OneForEachHead) {
  const at::Tensor x = at::ones({1, 2, 4, 3});
  AttentionInputs in{.q = x, .k = x, .v = x};
  in.sink = at::zeros({3});
  EXPECT_THROW(attention(in), Error);
}

}  // namespace sink_test
}  // namespace headroom::ops
