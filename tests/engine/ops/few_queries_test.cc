// Few queries against keys and values that lie in a cache, as in decoding: a sequence is fed in small steps, and every
// step gives the rows of the whole pass, computed from the same numbers in float64 by the reference.
#include "bfloat16.h"
#include "engine/ops/attention/cases.h"
#include "headroom/ops/choice.h"

namespace headroom::ops {
namespace few_queries_test {

using testing::in_double;
using testing::bfloat16::expect_within;
using testing::bfloat16::itself;
using testing::bfloat16::largest;

// Queries [begin, begin + t) of a sequence, with the keys there are by then.
AttentionInputs step(AttentionInputs in, std::int64_t begin, std::int64_t t) {
  const std::int64_t all = in.k.size(2), n = in.mask.causal ? begin + t : all;
  const auto keys = [&](at::Tensor& tensor, std::int64_t axis) { tensor = tensor.narrow(axis, 0, n); };
  const auto queries = [&](at::Tensor& tensor, std::int64_t axis) { tensor = tensor.narrow(axis, begin, t); };
  queries(in.q, 2);
  keys(in.k, 2);
  keys(in.v, 2);
  if (in.mask.valid_keys) {
    keys(*in.mask.valid_keys, 1);
  }
  if (in.r) {
    queries(*in.q_position, 2);
    in.r = in.r->narrow(1, all - n, n);
  }
  if (in.mixture) {
    std::for_each(in.mixture->more_keys.begin(), in.mixture->more_keys.end(), [&](at::Tensor& k) { keys(k, 2); });
    for (std::optional<at::Tensor>* tensor : {&in.mixture->shift, &in.mixture->prior}) {
      if (*tensor && (*tensor)->size(2) > 1) {
        keys(**tensor, 2);
      }
    }
  }
  for (std::optional<HeadMap>* map : {&in.pre, &in.post}) {
    if (*map) {
      queries((*map)->query.factors, 1);
      keys((*map)->key.factors, 1);
    }
  }
  return in;
}

// The result of small steps in turn, each by the fused version, which it chose itself.
at::Tensor in_steps(const AttentionInputs& all) {
  const at::NoGradGuard no_gradients;
  std::vector<at::Tensor> rows;
  forget_choices();
  std::int64_t begin = 0;
  for (std::size_t i = 0; begin < all.q.size(2); ++i) {
    constexpr std::array<std::int64_t, 4> kSteps = {1, 3, 1, 7};
    const std::int64_t t = std::min(kSteps[i % kSteps.size()], all.q.size(2) - begin);
    rows.push_back(attention(step(all, begin, t)));
    begin += t;
  }
  EXPECT_EQ(choices().at("attention").fused, static_cast<std::int64_t>(rows.size()));
  return at::cat(rows, 2);
}

at::Tensor exactly(const AttentionInputs& in) {
  return attention_reference(with_leaves(in, in_double(leaves_of(in))));
}

// float32's share as in the table of cases: squared lengths of size 2 e are differences that lose up to 2 e * 2^-24 * 4
// = 1.2e-5 before exp takes them, and composition adds up to 8 heads' sums. Of bfloat16, sums are those of float32
// whatever its products are, so that the result alone is rounded.
void expect_steps_equal_the_whole(at::ScalarType type) {
  for (const AttentionCase& c : attention_cases(Role::sequence)) {
    // Offsets of later queries reach farther where later keys are seen. Keys that are shifted at each position are
    // rounded again in bfloat16.
    const bool by_position = c.mixture && c.mixture->keys == MixtureCase::shifted_by_position;
    if ((c.relative && !c.causal) || (by_position && type == at::kBFloat16)) {
      continue;
    }
    at::manual_seed(7);
    const AttentionInputs all = c.inputs({type});
    const at::Tensor exact = exactly(all), got = in_steps(all);
    EXPECT_EQ(got.scalar_type(), type);
    expect_within(got, exact, {.rounded = itself(exact, got), .moved = {}, .single = 5e-5 * largest(exact)}, c.name());
    if (c.padding == AttentionCase::blind && c.causal) {
      EXPECT_EQ(largest(got.narrow(2, 0, 2)), 0.0) << c.name();
    }
  }
}

TEST(FewQueries, StepsEqualTheWhole) {
  expect_steps_equal_the_whole(at::kFloat);
}

TEST(FewQueries, Bfloat16StepsEqualTheWhole) {
  expect_steps_equal_the_whole(at::kBFloat16);
}

TEST(FewQueries, ThreadsChangeNothing) {
  for (const AttentionCase& c : attention_cases(Role::sequence)) {
    if (c.window > 0) {
      at::manual_seed(9);
      const AttentionInputs all = c.inputs({});
      const at::Tensor got = in_steps(all);
      testing::with_threads([&](int /*threads*/) { EXPECT_TRUE(in_steps(all).equal(got)) << c.name(); });
    }
  }
}

// float32 keys with bfloat16 values, of few queries and of many.
TEST(FewQueries, MixedTypesAreWidened) {
  for (const AttentionCase& c : attention_cases(Role::sequence)) {
    if (c.s != 83) {
      continue;
    }
    for (const std::int64_t queries : {3, 23}) {
      at::manual_seed(8);
      AttentionInputs in = step(c.inputs({}), 60, queries);
      in.v = in.v.to(at::kBFloat16);
      const at::Tensor exact = exactly(in);
      expect_within(attention(in, Implementation::fused), exact,
                    {.rounded = at::zeros_like(exact), .moved = {}, .single = 5e-5 * largest(exact)}, c.name());
    }
  }
}

}  // namespace few_queries_test
}  // namespace headroom::ops
