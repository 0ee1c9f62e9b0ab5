// Sequences with keys of their own: each is what it is alone.
#include <gtest/gtest.h>

#include "gradients.h"
#include "headroom/core/error.h"
#include "headroom/ops/attention.h"

namespace headroom::ops {
namespace attention_sequences_test {

struct Kind {
  std::int64_t groups = 4, width = 20;
  bool relative = false, sink = false, padded = false, causal = true;
  std::int64_t window = 0;
};

// Keys in the middle of a longer tensor, as a cache holds them.
AttentionInputs inputs_of(const Kind& kind, const std::vector<std::int64_t>& sizes, at::ScalarType type) {
  constexpr std::int64_t kHeads = 4, kDim = 19;
  const std::int64_t n = std::ssize(sizes), most = *std::max_element(sizes.begin(), sizes.end());
  AttentionInputs in{.q = at::randn({n, 1, kHeads, kDim}, type).transpose(1, 2)};
  in.scale = 0.3;
  in.mask = {.causal = kind.causal, .window = kind.window, .valid_keys = {}};
  for (const std::int64_t size : sizes) {
    SequenceKeys one{.k = at::randn({1, kind.groups, size + 7, kDim}, type),
                     .v = at::randn({1, kind.groups, size + 7, kind.width}, type),
                     .begin = 3,
                     .size = size};
    if (kind.padded) {
      one.valid_keys = at::rand({1, size}).gt(0.3);
    }
    if (size == most) {
      in.k = one.k.narrow(2, 3, size);
      in.v = one.v.narrow(2, 3, size);
    }
    in.sequences.push_back(one);
  }
  if (kind.relative) {
    in.q_position = at::randn({n, kHeads, 1, kDim}, type);
    in.r = at::randn({kHeads, most, kDim}, type);
  }
  if (kind.sink) {
    in.sink = at::randn({kHeads});
  }
  return in;
}

AttentionInputs alone(const AttentionInputs& in, std::int64_t row) {
  const SequenceKeys& own = in.sequences[static_cast<std::size_t>(row)];
  AttentionInputs one{.q = in.q.narrow(0, row, 1),
                      .k = own.k.narrow(2, own.begin, own.size),
                      .v = own.v.narrow(2, own.begin, own.size)};
  one.scale = in.scale;
  one.mask = in.mask;
  one.mask.valid_keys = own.valid_keys;
  one.sink = in.sink;
  if (in.r) {
    one.q_position = in.q_position->narrow(0, row, 1);
    one.r = in.r->narrow(1, in.r->size(1) - own.size, own.size);
  }
  return one;
}

TEST(AttentionSequences, EachIsWhatItIsAlone) {
  const std::vector<Kind> kinds = {{},
                                   {.groups = 1, .width = 5},
                                   {.groups = 2, .relative = true},
                                   {.relative = true, .sink = true, .window = 9},
                                   {.padded = true, .causal = false}};
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kDouble}) {
    for (const Kind& kind : kinds) {
      for (const std::vector<std::int64_t>& sizes :
           {std::vector<std::int64_t>{5}, {1, 40, 17}, {9, 9, 300, 2, 64, 33, 1, 8}}) {
        at::manual_seed(3);
        const AttentionInputs in = inputs_of(kind, sizes, type);
        for (const Implementation how : {Implementation::automatic, Implementation::reference}) {
          const at::Tensor together = attention(in, how);
          for (std::int64_t row = 0; row < std::ssize(sizes); ++row) {
            EXPECT_TRUE(together.narrow(0, row, 1).equal(attention(alone(in, row), how)))
                << at::toString(type) << ", " << sizes.size() << " sequences, row " << row;
          }
        }
        testing::with_threads([&](int /*threads*/) { EXPECT_TRUE(attention(in).equal(attention(in))); });
      }
    }
  }
}

TEST(AttentionSequences, RefusesWhatDoesNotFit) {
  const AttentionInputs good = inputs_of({.relative = true}, {4, 6}, at::kFloat);
  const auto refuses = [&](const std::function<void(AttentionInputs&)>& spoil) {
    AttentionInputs bad = good;
    spoil(bad);
    EXPECT_THROW(attention(bad), Error);
  };
  EXPECT_NO_THROW(attention(good));
  refuses([](AttentionInputs& in) { in.sequences.pop_back(); });
  refuses([](AttentionInputs& in) { in.sequences[0].size = 99; });
  refuses([](AttentionInputs& in) { in.sequences[0].size = 0; });
  refuses([](AttentionInputs& in) { in.sequences[1].v = in.sequences[1].v.narrow(1, 0, 2); });
  refuses([](AttentionInputs& in) { in.sequences[1].valid_keys = at::ones({1, 2}, at::kBool); });
  refuses([](AttentionInputs& in) { in.r = in.r->narrow(1, 0, 5); });
  refuses([](AttentionInputs& in) { in.bias = at::zeros({1, 4, 1, 6}); });
  refuses([](AttentionInputs& in) { in.q = at::cat({in.q, in.q}, 2); });
}

}  // namespace attention_sequences_test
}  // namespace headroom::ops
