// Tests decoding. A sequence read in small steps from a cache must give the rows of the whole sequence's float64
// reference. Decoding sequences with separate keys together must give the same bits as decoding each alone.

#include "attention_cases.h"
#include "gradients.h"

namespace headroom::ops::attention_decode_test {

using testing::in_double;

double largest(const at::Tensor& t) {
  return t.abs().max().item<double>();
}

// Expects errors below `single`. bfloat16 values may add one rounding to 8 bits, and 2% more for second-order terms.
void expect_within(const at::Tensor& got, const at::Tensor& exact, bool rounded, double single,
                   const std::string& what) {
  ASSERT_EQ(got.sizes(), exact.sizes()) << what;
  const at::Tensor allowed = exact.abs() * (rounded ? 1.02 / 256 : 0.0) + single;
  EXPECT_LE(((got.to(at::kDouble) - exact).abs() / allowed).max().item<double>(), 1.0) << what;  // false for NaN
}

// Returns the queries [begin, begin + t) of a sequence, and the keys up to the last of these queries.
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

// Runs the sequence in small steps and expects that each step chooses the fused version.
at::Tensor in_steps(const AttentionInputs& all) {
  const at::NoGradGuard no_gradients;
  std::vector<at::Tensor> rows;
  reset_implementation_counts();
  std::int64_t begin = 0;
  for (std::size_t i = 0; begin < all.q.size(2); ++i) {
    constexpr std::array<std::int64_t, 4> kSteps = {1, 3, 1, 7};
    const std::int64_t t = std::min(kSteps[i % kSteps.size()], all.q.size(2) - begin);
    rows.push_back(attention(step(all, begin, t)));
    begin += t;
  }
  EXPECT_EQ(implementation_counts().at("attention").fused, static_cast<std::int64_t>(rows.size()));
  return at::cat(rows, 2);
}

at::Tensor exactly(const AttentionInputs& in) {
  return attention_reference(with_leaves(in, in_double(leaves_of(in))));
}

// float32 has the error derived in attention_cases.cc: squared distances of size 2 e are differences with an error of
// up to 2 e * 2^-24 * 4 = 1.2e-5 before exp(), and composition sums over up to 8 heads. Even for bfloat16 tensors, the
// decode path accumulates in float32, so only the result is rounded.
void expect_steps_equal_the_whole(at::ScalarType type) {
  for (const AttentionCase& c : attention_cases(Role::sequence)) {
    // Without a causal mask, a step's offsets differ from the whole sequence's. Keys shifted by position are rounded
    // twice in bfloat16.
    const bool by_position = c.mixture && c.mixture->keys == MixtureCase::shifted_by_position;
    if ((c.relative && !c.causal) || (by_position && type == at::kBFloat16)) {
      continue;
    }
    at::manual_seed(7);
    const AttentionInputs all = c.inputs({type});
    const at::Tensor exact = exactly(all), got = in_steps(all);
    EXPECT_EQ(got.scalar_type(), type);
    expect_within(got, exact, type == at::kBFloat16, 5e-5 * largest(exact), c.name());
    if (c.padding == AttentionCase::blind && c.causal) {
      EXPECT_EQ(largest(got.narrow(2, 0, 2)), 0.0) << c.name();
    }
  }
}

TEST(AttentionDecode, StepsEqualTheFullPass) {
  expect_steps_equal_the_whole(at::kFloat);
}

TEST(AttentionDecode, Bfloat16StepsEqualTheFullPass) {
  expect_steps_equal_the_whole(at::kBFloat16);
}

TEST(AttentionDecode, ThreadsDoNotChangeTheResult) {
  for (const AttentionCase& c : attention_cases(Role::sequence)) {
    if (c.window > 0) {
      at::manual_seed(9);
      const AttentionInputs all = c.inputs({});
      const at::Tensor got = in_steps(all);
      testing::with_threads([&](int /*threads*/) { EXPECT_TRUE(in_steps(all).equal(got)) << c.name(); });
    }
  }
}

// Keys are float32 and values bfloat16, on the decode path and in blocks.
TEST(AttentionDecode, MixedTypesAreWidened) {
  for (const AttentionCase& c : attention_cases(Role::sequence)) {
    if (c.s != 83) {
      continue;
    }
    for (const std::int64_t queries : {3, 23}) {
      at::manual_seed(8);
      AttentionInputs in = step(c.inputs({}), 60, queries);
      in.v = in.v.to(at::kBFloat16);
      const at::Tensor exact = exactly(in);
      expect_within(attention(in, Implementation::fused), exact, false, 5e-5 * largest(exact), c.name());
    }
  }
}

struct Kind {
  std::int64_t groups = 4, width = 20;
  bool relative = false, sink = false, padded = false, causal = true;
  std::int64_t window = 0;
};

// The keys are in the middle of a longer tensor, as in a cache.
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

TEST(AttentionSequences, EachEqualsItsResultAlone) {
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

TEST(AttentionSequences, RefusesMismatchedInputs) {
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

}  // namespace headroom::ops::attention_decode_test
