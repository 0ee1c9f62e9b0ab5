// Few queries against keys and values that lie in a cache, as in decoding: a sequence is fed in small steps, and every
// step gives the rows of the whole pass, computed from the same numbers in float64 by the reference.
#include <cmath>

#include "sequences.h"

namespace headroom::ops {
namespace few_queries_test {

using testing::bfloat16::expect_within;
using testing::bfloat16::itself;
using testing::bfloat16::largest;
using testing::bfloat16::Sizes;
using testing::sequences::all_kinds;
using testing::sequences::Kind;
using testing::sequences::sequence;

const std::vector<Sizes> kSequences = {{2, 4, 2, 83, 83, 13},
                                       {1, 8, 4, 140, 140, 11, true, 80},
                                       {2, 6, 6, 70, 70, 24, true, 0, true},
                                       {2, 3, 1, 67, 67, 7, false, 0, true}};

AttentionInputs in_double(AttentionInputs in) {
  const auto widen = [](at::Tensor& t) { t = t.to(at::kDouble); };
  const auto widen_all = [&](auto... t) { (widen(*t), ...); };
  widen_all(&in.q, &in.k, &in.v);
  if (in.r) {
    widen_all(&*in.q_position, &*in.r);
  }
  if (in.mixture) {
    std::for_each(in.mixture->more_keys.begin(), in.mixture->more_keys.end(), widen);
    for (std::optional<at::Tensor>* t : {&in.mixture->shift, &in.mixture->coefficient, &in.mixture->prior}) {
      if (*t) {
        widen(**t);
      }
    }
  }
  for (std::optional<HeadMap>* map : {&in.pre, &in.post}) {
    if (*map) {
      widen_all(&*(*map)->fixed, &(*map)->query.factors, &(*map)->key.factors);
    }
  }
  return in;
}

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

// float32's share as in FusedHeads.EveryCombinationEqualsTheReference: squared lengths of size 2 e are differences that
// lose up to 2 e * 2^-24 * 4 = 1.2e-5 before exp takes them, and composition adds up to 8 heads' sums. Of bfloat16,
// sums are those of float32 whatever its products are, so that the result alone is rounded.
void expect_steps_equal_the_whole(at::ScalarType type) {
  for (const Sizes& z : kSequences) {
    for (const Kind& kind : all_kinds()) {
      // Offsets of later queries reach farther where later keys are seen. Keys that are shifted at each position are
      // rounded again in bfloat16.
      if ((kind.relative && !z.causal) || (kind.scores == Kind::shifted_by_position && type == at::kBFloat16)) {
        continue;
      }
      at::manual_seed(7);
      const AttentionInputs all = sequence(z, kind, type);
      const std::string what = z.name() + kind.name();
      const at::Tensor exact = attention_reference(in_double(all)), got = in_steps(all);
      EXPECT_EQ(got.scalar_type(), type);
      expect_within(got, exact, {.rounded = itself(exact, got), .moved = {}, .single = 5e-5 * largest(exact)}, what);
      if (z.padded && z.causal) {
        EXPECT_EQ(largest(got.narrow(2, 0, 2)), 0.0) << what;
      }
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
  for (const Kind& kind : all_kinds()) {
    at::manual_seed(9);
    const AttentionInputs all = sequence(kSequences[1], kind, at::kFloat);
    const at::Tensor got = in_steps(all);
    testing::with_threads([&](int /*threads*/) { EXPECT_TRUE(in_steps(all).equal(got)) << kind.name(); });
  }
}

// float32 keys with bfloat16 values, of few queries and of many.
TEST(FewQueries, MixedTypesAreWidened) {
  const Sizes& z = kSequences.front();
  for (const Kind& kind : all_kinds()) {
    for (const std::int64_t queries : {3, 23}) {
      at::manual_seed(8);
      AttentionInputs in = step(sequence(z, kind, at::kFloat), 60, queries);
      in.v = in.v.to(at::kBFloat16);
      const at::Tensor exact = attention_reference(in_double(in));
      expect_within(attention(in, Implementation::fused), exact,
                    {.rounded = at::zeros_like(exact), .moved = {}, .single = 5e-5 * largest(exact)}, kind.name());
    }
  }
}

}  // namespace few_queries_test
}  // namespace headroom::ops
