// The fused operators keep no matrix of queries x keys, neither forward nor for the way back.
#include <cmath>

#include "gradients.h"
#include "headroom/core/system.h"
#include "headroom/ops/attention.h"
#include "one_thread.h"

namespace headroom::ops {
namespace attention_memory_test {

constexpr std::int64_t kHeads = 2, kTokens = 1536, kWidth = 8;
constexpr std::int64_t kMatrix = kTokens * kTokens * std::int64_t{sizeof(float)};  // of one head

AttentionInputs random_inputs() {
  const auto make = [] { return at::randn({1, kHeads, kTokens, kWidth}); };
  return {.q = make(), .k = make(), .v = make(), .scale = 1.0 / std::sqrt(static_cast<double>(kWidth))};
}

AttentionInputs relative() {
  AttentionInputs in = random_inputs();
  in.q_position = in.q + 1.0;
  in.r = at::randn({kHeads, kTokens, kWidth});
  return in;
}

AttentionInputs composed() {
  AttentionInputs in = random_inputs();
  HeadMap map;
  for (HeadMapSide* side : {&map.query, &map.key}) {
    *side = {.factors = at::randn({1, kTokens, 5 * kHeads}), .rank = 2, .has_gate = true};
  }
  in.pre = map;
  in.post = map;
  return in;
}

AttentionInputs mixture() {
  AttentionInputs in = random_inputs();
  in.mixture = Mixture{.more_keys = {in.k + 0.5}, .coefficient = at::full({2}, 0.2F)};
  return in;
}

AttentionInputs everything() {
  AttentionInputs in = composed();
  in.q_position = in.q + 1.0;
  in.r = at::randn({kHeads, kTokens, kWidth});
  in.mixture = Mixture{.more_keys = {in.k + 0.5}, .coefficient = at::full({2}, 0.2F)};
  return in;
}

// Bytes that a forward and backward pass adds to the process at its peak.
std::int64_t peak_of(const AttentionInputs& like, Implementation implementation) {
  const auto run = [&] {
    testing::evaluate(
        [&](const std::vector<at::Tensor>& x) {
          AttentionInputs in = like;
          in.q = x[0];
          in.k = x[1];
          in.v = x[2];
          return attention(in, implementation);
        },
        {like.q, like.k, like.v});
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
    GTEST_SKIP() << "this system does not forget the peak of memory";
  }
  at::manual_seed(1);
  for (const auto& [name, in] : {std::pair{"plain", random_inputs()},
                                 {"relative", relative()},
                                 {"composed", composed()},
                                 {"mixture", mixture()},
                                 {"everything", everything()}}) {
    EXPECT_LT(peak_of(in, Implementation::fused), kMatrix) << name;
    EXPECT_GT(peak_of(in, Implementation::reference), 2 * kHeads * kMatrix) << name;  // what the bound would catch
  }
}

}  // namespace attention_memory_test
}  // namespace headroom::ops
