#include "headroom/ops/attention.h"

#include "attention_cases.h"
#include "foundation/core/machine/system.h"
#include "gradients.h"
#include "one_thread.h"

namespace headroom::ops::attention_test {

using testing::evaluate;

TEST(Attention, ThreadsDoNotChangeTheResult) {
  std::vector<AttentionCase> all = {{2, 4, 2, 130, 170, 9, true, 0, AttentionCase::none, true},
                                    {2, 4, 2, 3, 170, 9, true, 0, AttentionCase::none, true}};
  AttentionCase heads{1, 4, 4, 150, 150, 8};  // several blocks of rows, several parts
  for (const AttentionCase& kind : attention_cases(Role::sequence)) {
    if (kind.h == 8) {
      heads.relative = kind.relative;
      heads.composed = kind.composed;
      heads.mixture = kind.mixture;
      heads.w = kind.w;
      heads.sink = kind.sink;
      all.push_back(heads);
    }
  }
  heads = {2, 4, 2, 150, 190, 8};
  heads.formula = FormulaCase{"s * learned0 + table0[i - j] - token0(j)", "i - j < 70 or j % 40 < token0(i)"};
  all.push_back(heads);
  for (const AttentionCase& s : all) {
    at::manual_seed(6);
    const Problem problem = s.problem({});
    testing::expect_threads_change_nothing([&](const auto& x) { return problem.run(x, Implementation::fused); },
                                           problem.leaves, s.name());
  }
}

TEST(Attention, WithoutAnyKeyGivesZeroAndNoGradient) {
  at::manual_seed(5);
  for (const std::int64_t queries : {3, 8, 70}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kDouble}) {
      const Problem problem = AttentionCase{1, 2, 2, queries, 0, 16, false}.problem({type});
      const auto result =
          evaluate([&](const auto& x) { return problem.run(x, Implementation::automatic); }, problem.leaves);
      EXPECT_EQ(result.value.abs().max().item<double>(), 0.0) << queries << type;
      EXPECT_EQ(result.gradients[0].abs().max().item<double>(), 0.0) << queries << type;
    }
  }
}

// Returns inputs [2, 4, T, 8]: plain, with composed heads, and with a mixture of keys.
std::vector<AttentionInputs> plain_composed_and_mixed(std::int64_t queries, std::int64_t keys, at::ScalarType type) {
  const auto random = [&](std::int64_t tokens) { return at::randn({2, 4, tokens, 8}).to(type); };
  std::vector<AttentionInputs> all;
  for (int kind = 0; kind < 3; ++kind) {
    all.push_back({.q = random(queries), .k = random(keys), .v = random(keys), .mask = {.causal = false}});
  }
  all[1].pre = HeadMap{.n_groups = 1, .skip = true, .fixed = at::randn({1, 4, 4}), .query = {}, .key = {}};
  all[2].mixture = Mixture{.shift = at::randn({2, 4, 1, 8}).to(type)};
  return all;
}

TEST(Attention, ComposedAndMixedHeadsWithoutKeysGiveZero) {
  for (const std::int64_t queries : {3, 12}) {
    for (AttentionInputs& in : plain_composed_and_mixed(queries, 0, at::kFloat)) {
      in.q.requires_grad_(true);
      const at::Tensor o = attention(in);
      EXPECT_EQ(o.abs().max().item<double>(), 0.0) << queries;
      EXPECT_EQ(torch::autograd::grad({o.sum()}, {in.q})[0].abs().max().item<double>(), 0.0) << queries;
    }
  }
}

TEST(Attention, ANanReachesTheSameResultsAsInTheReference) {
  at::manual_seed(6);
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const auto expect_same = [](const AttentionInputs& in, const char* what) {
    const at::Tensor fused = attention(in, Implementation::fused).isnan();
    EXPECT_TRUE(at::equal(fused, attention(in, Implementation::reference).isnan())) << what;
    return fused.any().item<bool>();
  };
  for (const std::int64_t queries : {1, 3, 12}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      for (AttentionInputs& in : plain_composed_and_mixed(queries, 12, type)) {
        in.q[1][2][0].fill_(kNan);
        EXPECT_TRUE(expect_same(in, "query"));
        in.q[1][2][0].fill_(1.0);
        in.k[0][1][2].fill_(kNan);
        EXPECT_TRUE(expect_same(in, "key"));
        in.mask.valid_keys = at::ones({2, 12}, at::kBool);
        (*in.mask.valid_keys)[0][2].zero_();
        EXPECT_FALSE(expect_same(in, "padded key"));
        in.k.fill_(kNan);
        EXPECT_TRUE(expect_same(in, "every key"));
      }
    }
  }
}

TEST(Attention, RefusesMismatchedInputs) {
  const at::Tensor q = at::ones({1, 2, 4, 3}), k = at::ones({1, 2, 3, 3});
  EXPECT_THROW(attention({.q = q, .k = k, .v = k}), Error);  // a causal mask needs at least as many keys as queries
  EXPECT_THROW(attention({.q = q, .k = at::ones({1, 3, 4, 3}), .v = at::ones({1, 3, 4, 3})}), Error);
  AttentionInputs half{.q = q, .k = q, .v = q};
  half.q_position = q;
  EXPECT_THROW(attention(half), Error);
  EXPECT_THROW(attention({.q = q, .k = q, .v = q, .mask = {.window = -3}}), Error);
  AttentionInputs none{.q = q, .k = q, .v = q};
  none.mixture = Mixture{.shift = at::zeros({0, 2, 1, 3})};
  EXPECT_THROW(attention(none), Error);
}

TEST(Attention, UnfusedInputsHaveAReason) {
  at::manual_seed(4);
  AttentionInputs in{.q = at::randn({1, 2, 4, 3}), .k = at::randn({1, 2, 4, 3}), .v = at::randn({1, 2, 4, 3})};
  in.mixture = Mixture{.more_keys = {at::randn({1, 2, 4, 3})}};
  in.mixture->coefficient = at::rand({2}).requires_grad_(true);
  EXPECT_THROW(attention(in, Implementation::fused), UserError);
  in.mixture.reset();
  in.pre = HeadMap{.n_groups = 1, .skip = true, .fixed = at::randn({1, 2, 2}), .query = {}, .key = {}};
  in.post = HeadMap{.n_groups = 2, .skip = true, .fixed = at::randn({2, 1, 1}), .query = {}, .key = {}};
  EXPECT_THROW(attention(in, Implementation::fused), UserError);
}

// Returns the result and the gradients with all tensors in this layout.
std::vector<at::Tensor> result_and_gradients(const AttentionInputs& in, Layout layout) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& leaf : leaves_of(in)) {
    leaves.push_back(in_layout(leaf, layout).requires_grad_());
  }
  const at::Tensor o = attention(with_leaves(in, leaves), Implementation::fused);
  at::manual_seed(12);
  const at::Tensor grad = in_layout(at::randn(o.sizes()).to(o.scalar_type()), layout);
  std::vector<at::Tensor> all = torch::autograd::grad({o}, leaves, {grad});
  all.push_back(o);
  return all;
}

// Rows at odd offsets and strides must give the same bits as contiguous rows.
TEST(AttentionViews, EqualCopiesBitForBit) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const AttentionCase& c : attention_cases(Role::sequence)) {
      if (c.padding != AttentionCase::none || c.window > 0) {
        continue;
      }
      at::manual_seed(11);
      const AttentionInputs in = c.inputs({type});
      const std::vector<at::Tensor> tight = result_and_gradients(in, Layout::dense),
                                    views = result_and_gradients(in, Layout::gaps);
      for (std::size_t i = 0; i < tight.size(); ++i) {
        EXPECT_TRUE(views[i].equal(tight[i])) << c.name() << " tensor " << i << " of " << type;
        EXPECT_TRUE(tight[i].isfinite().all().item<bool>()) << c.name();
      }
    }
  }
}

constexpr std::int64_t kHeads = 2, kTokens = 1536, kWidth = 8;
constexpr std::int64_t kMatrix = kTokens * kTokens * std::int64_t{sizeof(float)};  // bytes of a head's pairs

AttentionCase case_of(bool relative, bool composed, bool mixture) {
  AttentionCase c{1, kHeads, kHeads, kTokens, kTokens, kWidth, true, 0, AttentionCase::none, relative};
  c.composed = composed ? std::optional(ComposedCase{.fixed = false}) : std::nullopt;
  c.mixture = mixture ? std::optional(MixtureCase{}) : std::nullopt;
  return c;
}

// Returns the bytes by which a forward and backward pass raises the process's peak memory.
std::int64_t peak_of(const Problem& problem, Implementation implementation) {
  const auto run = [&] {
    testing::evaluate([&](const std::vector<at::Tensor>& x) { return problem.run(x, implementation); }, problem.leaves);
  };
  if (implementation == Implementation::fused) {
    run();  // oneDNN generates its kernels in the first run
  }
  reset_peak_memory();
  const std::int64_t before = resident_memory_bytes();
  run();
  return peak_memory_bytes() - before;
}

TEST(AttentionMemory, NoMatrixOfQueriesAndKeysIsStored) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer holds freed memory back";
#endif
  { const at::Tensor touched = at::ones({4 * kMatrix / std::int64_t{sizeof(float)}}); }
  reset_peak_memory();
  if (peak_memory_bytes() - resident_memory_bytes() > kMatrix) {
    GTEST_SKIP() << "this system cannot reset the peak of memory";
  }
  at::manual_seed(1);
  for (const AttentionCase& c : {case_of(false, false, false), case_of(true, false, false), case_of(false, true, false),
                                 case_of(false, false, true), case_of(true, true, true)}) {
    const Problem problem = c.problem({});
    EXPECT_LT(peak_of(problem, Implementation::fused), kMatrix) << c.name();
    // The reference must exceed the bound, which shows that the test can fail.
    EXPECT_GT(peak_of(problem, Implementation::reference), 2 * kHeads * kMatrix) << c.name();
  }
}

}  // namespace headroom::ops::attention_test
