// The fused operators keep no matrix of queries x keys, neither forward nor for backward.
#include "engine/ops/attention/cases.h"
#include "foundation/core/machine/system.h"
#include "gradients.h"
#include "one_thread.h"

namespace headroom::ops {
namespace attention_memory_test {

constexpr std::int64_t kHeads = 2, kTokens = 1536, kWidth = 8;
constexpr std::int64_t kMatrix = kTokens * kTokens * std::int64_t{sizeof(float)};  // of one head

AttentionCase case_of(bool relative, bool composed, bool mixture) {
  AttentionCase c{1, kHeads, kHeads, kTokens, kTokens, kWidth, true, 0, AttentionCase::none, relative};
  c.composed = composed ? std::optional(ComposedCase{.fixed = false}) : std::nullopt;
  c.mixture = mixture ? std::optional(MixtureCase{}) : std::nullopt;
  return c;
}

// Bytes that a forward and backward pass adds to the process at its peak.
std::int64_t peak_of(const Problem& problem, Implementation implementation) {
  const auto run = [&] {
    testing::evaluate([&](const std::vector<at::Tensor>& x) { return problem.run(x, implementation); }, problem.leaves);
  };
  if (implementation == Implementation::fused) {
    run();  // kernels are made once
  }
  reset_peak_memory();
  const std::int64_t before = resident_memory_bytes();
  run();
  return peak_memory_bytes() - before;
}

TEST(AttentionMemory, NoMatrixOfQueriesAndKeysIsKept) {
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
    // What the bound would catch.
    EXPECT_GT(peak_of(problem, Implementation::reference), 2 * kHeads * kMatrix) << c.name();
  }
}

}  // namespace attention_memory_test
}  // namespace headroom::ops
