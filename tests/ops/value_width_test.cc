// Values of another width than queries and keys, against the reference in double precision.
#include "headroom/core/error.h"
#include "headroom/ops/linear_attention.h"
#include "sequences.h"

namespace headroom::ops {
namespace value_width_test {

using testing::bfloat16::Sizes;
using testing::sequences::all_kinds;
using testing::sequences::Kind;

TEST(ValueWidth, FusedEqualsTheReference) {
  // Blocks of rows and columns of several sizes; fewer queries than are worth a block; both masks and padding.
  const std::vector<Sizes> sizes = {
      {2, 4, 2, 83, 83, 13}, {1, 4, 4, 70, 70, 8, true, 30}, {2, 2, 1, 5, 5, 16}, {2, 3, 3, 67, 67, 7, false, 0, true}};
  for (const Sizes& z : sizes) {
    for (const std::int64_t width : {1, 5, 40}) {
      for (const Kind& kind : all_kinds()) {
        if ((kind.relative && !z.causal) || (kind.scores == Kind::best && z.s > 40)) {  // ties but for rounding
          continue;
        }
        at::manual_seed(3);
        AttentionInputs in = testing::sequences::sequence(z, kind, at::kFloat);
        in.v = testing::sequences::cached(at::randn({z.b, z.g, z.s, width}), 2);
        // The bound of FusedHeads.EveryCombinationEqualsTheReference.
        testing::sequences::expect_fused_equals_reference(in, 5e-5,
                                                          z.name() + kind.name() + fmt::format(" w {}", width));
      }
    }
  }
}

TEST(ValueWidth, OfLinearAttention) {
  for (const bool causal : {true, false}) {
    at::manual_seed(4);
    const std::vector<at::Tensor> x = {at::rand({2, 4, 70, 6}), at::rand({2, 2, 70, 6}), at::randn({2, 2, 70, 11})};
    const auto run = [&](Implementation implementation) {
      return [=](const std::vector<at::Tensor>& in) {
        return linear_attention({.q = in[0], .k = in[1], .v = in[2], .causal = causal, .epsilon = 1e-3},
                                implementation);
      };
    };
    // Sums of up to 70 products of positive numbers.
    testing::expect_close(testing::evaluate(run(Implementation::fused), x),
                          testing::evaluate(run(Implementation::reference), testing::in_double(x)), 1e-5, "linear");
  }
  const at::NoGradGuard no_grad;
  const at::Tensor q = at::rand({1, 2, 9, 3}), v = at::randn({1, 2, 9, 5});
  LinearState state;
  std::vector<at::Tensor> rows;
  for (std::int64_t i = 0; i < 9; ++i) {
    const at::Tensor here = q.narrow(2, i, 1);
    rows.push_back(linear_attention({.q = here, .k = here, .v = v.narrow(2, i, 1)}, Implementation::automatic, &state));
  }
  EXPECT_EQ(state.kv.sizes(), (std::vector<std::int64_t>{1, 2, 3, 5}));
  EXPECT_LE(testing::relative_error(at::cat(rows, 2), linear_attention({.q = q, .k = q, .v = v})), 1e-6);
}

TEST(ValueWidth, OtherAxesMustFit) {
  const at::Tensor q = at::ones({1, 2, 4, 3});
  EXPECT_THROW(attention({.q = q, .k = q, .v = at::ones({1, 2, 5, 7})}), Error);
  EXPECT_THROW(linear_attention({.q = q, .k = q, .v = at::ones({1, 1, 4, 7})}), Error);
}

}  // namespace value_width_test
}  // namespace headroom::ops
