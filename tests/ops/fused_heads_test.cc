// The fused kernels for composed heads and for mixtures of keys against the reference in double precision.
#include <cmath>

#include "gradients.h"
#include "headroom/core/error.h"
#include "headroom/ops/attention.h"
#include "one_thread.h"

namespace headroom::ops {
namespace fused_heads_test {

using testing::evaluate;
using testing::relative_error;

struct Sizes {
  std::int64_t b, h, g, t, s, e;
  bool causal = true;
  std::int64_t window = 0;
  bool padded = false;
  std::string name() const {
    return fmt::format("B{} H{} G{} T{} S{} e{} causal {} window {} padded {}", b, h, g, t, s, e, causal, window,
                       padded);
  }
};

const std::vector<Sizes> kSizes = {{1, 1, 1, 1, 1, 1},
                                   {2, 4, 2, 17, 17, 5},
                                   {2, 8, 8, 37, 70, 13},
                                   {1, 3, 1, 20, 131, 7, false},
                                   {2, 6, 6, 33, 33, 4, true, 5},
                                   {2, 16, 4, 9, 9, 8},
                                   {2, 8, 8, 40, 40, 6, false, 0, true},
                                   {3, 4, 4, 67, 67, 3, true, 0, true},
                                   {1, 4, 2, 150, 170, 5, true, 90},
                                   {2, 4, 2, 1, 83, 5},  // few queries, many keys
                                   {1, 8, 4, 7, 140, 11, true, 80},
                                   {2, 6, 6, 5, 70, 16, false, 0, true}};

// A query's row of results and everything that its gradient goes to, by name.
class Inputs {
 public:
  explicit Inputs(at::ScalarType type) : type_(type) {}

  // Strided: the axes lie in another order.
  at::Tensor make(at::IntArrayRef shape, double size = 1.0) {
    leaves_.push_back((at::randn(shape, at::kDouble) * size).to(type_).transpose(0, 1).contiguous().transpose(0, 1));
    return leaves_.back();
  }
  const std::vector<at::Tensor>& leaves() const { return leaves_; }

 private:
  at::ScalarType type_;
  std::vector<at::Tensor> leaves_;
};

// Takes what make() made in the same order, from the tensors that the test differentiates for.
struct Reader {
  const std::vector<at::Tensor>& from;
  std::size_t next = 0;
  at::Tensor operator()() { return from[next++]; }
};

AttentionInputs basic(const Sizes& z, Reader& read) {
  AttentionInputs in;
  in.q = read();
  in.k = read();
  in.v = read();
  in.scale = 0.7 / std::sqrt(static_cast<double>(z.e));
  in.mask.causal = z.causal;
  in.mask.window = z.window;
  if (z.padded) {
    at::Tensor valid = at::arange(z.b * z.s).view({z.b, z.s}).remainder(3).ne(1);
    valid.narrow(1, 0, 2).fill_(false);  // the first rows see nothing
    in.mask.valid_keys = valid;
  }
  return in;
}

void make_basic(const Sizes& z, Inputs& inputs) {
  inputs.make({z.b, z.h, z.t, z.e});
  inputs.make({z.b, z.g, z.s, z.e});
  inputs.make({z.b, z.g, z.s, z.e});
}

struct Parts {
  bool pre, post, skip, fixed, low_query, low_key, gate_query, gate_key;
  std::int64_t groups = 1, rank = 2;
};

void make_stage(const Sizes& z, const Parts& p, Inputs& inputs) {
  const std::int64_t m = z.h / p.groups;
  if (p.fixed) {
    inputs.make({p.groups, m, m}, 0.3);
  }
  for (const bool query : {true, false}) {
    const std::int64_t n = query ? z.t : z.s;
    const std::int64_t rank = (query ? p.low_query : p.low_key) ? p.rank : 0, gate = query ? p.gate_query : p.gate_key;
    if (2 * rank + gate > 0) {
      inputs.make({z.b, n, (2 * rank + gate) * z.h}, 0.5);
    }
  }
}

HeadMap stage(const Parts& p, Reader& read) {
  HeadMap map{.n_groups = p.groups, .skip = p.skip, .fixed = {}, .query = {}, .key = {}};
  if (p.fixed) {
    map.fixed = read();
  }
  for (const bool query : {true, false}) {
    HeadMapSide& side = query ? map.query : map.key;
    side.rank = (query ? p.low_query : p.low_key) ? p.rank : 0;
    side.has_gate = query ? p.gate_query : p.gate_key;
    if (side.rank > 0 || side.has_gate) {
      side.factors = read();
    }
  }
  return map;
}

using Make = std::function<AttentionInputs(const std::vector<at::Tensor>&)>;

// Errors count relative to the tensor's largest entry, but at least to a tenth of the largest of all gradients:
// some vanish by cancellation (a prior's, where it is the same for all keys).
void expect_fused_equals_reference(const Make& make, const std::vector<at::Tensor>& leaves, double bound,
                                   const std::string& name) {
  const auto got = evaluate([&](const auto& x) { return attention(make(x), Implementation::fused); }, leaves);
  const auto expected =
      evaluate([&](const auto& x) { return attention_reference(make(x)); }, testing::in_double(leaves));
  EXPECT_LE(relative_error(got.value, expected.value), bound) << name << ": value";
  const auto largest = [](const at::Tensor& t) { return t.abs().max().item<double>(); };
  double all = 0.0;
  for (const at::Tensor& gradient : expected.gradients) {
    all = std::max(all, largest(gradient));
  }
  for (std::size_t i = 0; i < expected.gradients.size(); ++i) {
    const double scale = std::max(largest(expected.gradients[i]), 0.1 * all);
    EXPECT_LE(largest(got.gradients[i] - expected.gradients[i]), bound * scale) << name << ": gradient " << i;
  }
}

TEST(FusedHeads, ComposedEqualsTheReference) {
  const std::vector<Parts> all = {
      {true, true, true, false, true, true, true, true},      {true, false, true, false, true, false, true, false},
      {false, true, true, false, false, true, false, true},   {true, true, false, true, false, false, false, false},
      {true, true, true, true, true, true, true, true, 1, 1}, {true, true, true, false, false, false, true, true}};
  for (const Sizes& z : kSizes) {
    for (Parts p : all) {
      for (const std::int64_t groups : {std::int64_t{1}, z.h % 2 == 0 ? z.h / 2 : z.h}) {
        p.groups = groups;
        at::manual_seed(1);
        Inputs inputs(at::kFloat);
        make_basic(z, inputs);
        for (const bool present : {p.pre, p.post}) {
          if (present) {
            make_stage(z, p, inputs);
          }
        }
        const Make make = [&](const std::vector<at::Tensor>& x) {
          Reader read{x};
          AttentionInputs in = basic(z, read);
          if (p.pre) {
            in.pre = stage(p, read);
          }
          if (p.post) {
            in.post = stage(p, read);
          }
          return in;
        };
        // As plain attention, with sums over up to 16 heads on top.
        expect_fused_equals_reference(make, inputs.leaves(), 2e-5, z.name() + fmt::format(" groups {}", groups));
      }
    }
  }
}

TEST(FusedHeads, MixturesEqualTheReference) {
  for (const Sizes& z : kSizes) {
    for (const std::int64_t n : {1, 2, 3}) {
      for (const bool gaussian : {true, false}) {
        for (const int shifted : {0, 1, 2}) {  // own keys, shifted, shifted by an amount that depends on the position
          for (const double epsilon : {0.0, 0.5}) {
            at::manual_seed(2);
            Inputs inputs(at::kFloat);
            make_basic(z, inputs);
            for (std::int64_t r = 1; shifted == 0 && r < n; ++r) {
              inputs.make({z.b, z.g, z.s, z.e});
            }
            if (shifted > 0) {
              inputs.make({n, z.g, shifted == 1 ? 1 : z.s, z.e});
            }
            inputs.make({n, z.g, z.s}, 0.3);
            const Make make = [&](const std::vector<at::Tensor>& x) {
              Reader read{x};
              AttentionInputs in = basic(z, read);
              Mixture mixture;
              for (std::int64_t r = 1; shifted == 0 && r < n; ++r) {
                mixture.more_keys.push_back(read());
              }
              if (shifted > 0) {
                mixture.shift = read();
              }
              mixture.prior = read().exp();
              if (gaussian) {
                mixture.coefficient = at::arange(1, n + 1).to(in.q.scalar_type()) * 0.2;
              }
              mixture.epsilon = epsilon;
              in.mixture = mixture;
              return in;
            };
            // Squared lengths of size 2 e are differences that lose up to 2 e * 2^-24 * 4 before exp takes them.
            expect_fused_equals_reference(make, inputs.leaves(), 3e-5,
                                          z.name() + fmt::format(" R {} gaussian {} shifted {}", n, gaussian, shifted));
          }
        }
      }
    }
  }
}

// Of few pairs: where two components are equal but for rounding, either may be the best one.
TEST(FusedHeads, TheBestComponentAloneEqualsTheReference) {
  for (const Sizes& z : kSizes) {
    for (const std::int64_t n : {1, 2, 3}) {
      for (const bool shifted : {false, true}) {
        if (z.t * z.s > 1600) {
          continue;
        }
        at::manual_seed(5);
        Inputs inputs(at::kFloat);
        make_basic(z, inputs);
        for (std::int64_t r = 1; !shifted && r < n; ++r) {
          inputs.make({z.b, z.g, z.s, z.e});
        }
        if (shifted) {
          inputs.make({n, z.g, 1, z.e});
        }
        const Make make = [&](const std::vector<at::Tensor>& x) {
          Reader read{x};
          AttentionInputs in = basic(z, read);
          in.mixture = Mixture{.more_keys = {}};
          for (std::int64_t r = 1; !shifted && r < n; ++r) {
            in.mixture->more_keys.push_back(read());
          }
          if (shifted) {
            in.mixture->shift = read();
          }
          in.mixture->coefficient = at::arange(1, n + 1).to(in.q.scalar_type()) * 0.2;
          in.mixture->maximum = true;
          return in;
        };
        expect_fused_equals_reference(make, inputs.leaves(), 3e-5, z.name() + fmt::format(" R {} best", n));
      }
    }
  }
}

// What a layer combines of scores and heads.
struct Combination {
  bool composed, relative;
  enum Scores { dot, own_keys, shifted, best } scores;
  std::string name() const {
    return fmt::format(" composed {} relative {} scores {}", composed, relative, static_cast<int>(scores));
  }
};

const Parts kAllParts = {true, true, true, true, true, true, true, true};

void make_combination(const Sizes& z, const Combination& c, Inputs& inputs) {
  make_basic(z, inputs);
  if (c.relative) {
    inputs.make({z.b, z.h, z.t, z.e});
    inputs.make({z.h, z.causal ? z.s : z.s + z.t - 1, z.e});
  }
  if (c.scores == Combination::own_keys || c.scores == Combination::best) {
    inputs.make({z.b, z.g, z.s, z.e});
  } else if (c.scores == Combination::shifted) {
    inputs.make({3, z.g, 1, z.e});
  }
  for (int stage = 0; c.composed && stage < 2; ++stage) {
    make_stage(z, kAllParts, inputs);
  }
}

AttentionInputs combination(const Sizes& z, const Combination& c, const std::vector<at::Tensor>& x) {
  Reader read{x};
  AttentionInputs in = basic(z, read);
  if (c.relative) {
    in.q_position = read();
    in.r = read();
  }
  if (c.scores != Combination::dot) {
    in.mixture = Mixture{.more_keys = {}};
    const std::int64_t n = c.scores == Combination::shifted ? 3 : 2;
    in.mixture->coefficient = at::arange(1, n + 1).to(in.q.scalar_type()) * 0.05;
    if (c.scores == Combination::shifted) {
      in.mixture->shift = read();
      in.mixture->epsilon = 0.5;
    } else {
      in.mixture->more_keys = {read()};
      in.mixture->maximum = c.scores == Combination::best;
    }
  }
  if (c.composed) {
    in.pre = stage(kAllParts, read);
    in.post = stage(kAllParts, read);
  }
  return in;
}

std::vector<Combination> all_combinations() {
  std::vector<Combination> all;
  for (const bool composed : {false, true}) {
    for (const bool relative : {false, true}) {
      for (const auto scores : {Combination::dot, Combination::own_keys, Combination::shifted, Combination::best}) {
        all.push_back({composed, relative, scores});
      }
    }
  }
  return all;
}

TEST(FusedHeads, EveryCombinationEqualsTheReference) {
  for (const Sizes& z : kSizes) {
    for (const Combination& c : all_combinations()) {
      if (c.scores == Combination::best && z.t * z.s > 1600) {  // equal but for rounding, either may be the best
        continue;
      }
      at::manual_seed(6);
      Inputs inputs(at::kFloat);
      make_combination(z, c, inputs);
      // The bounds above: mixtures' differences of squared lengths, sums over up to 16 heads on top.
      expect_fused_equals_reference([&](const auto& x) { return combination(z, c, x); }, inputs.leaves(), 5e-5,
                                    z.name() + c.name());
    }
  }
}

TEST(FusedHeads, ThreadsChangeNothing) {
  const Sizes z{1, 4, 4, 150, 150, 8};  // several blocks of rows, dealt out to several parts
  at::manual_seed(3);
  Inputs inputs(at::kFloat);
  make_basic(z, inputs);
  const Parts p{true, true, true, true, true, true, true, true};
  make_stage(z, p, inputs);
  make_stage(z, p, inputs);
  inputs.make({2, z.g, 1, z.e});
  const auto composed = [&](const std::vector<at::Tensor>& x) {
    Reader read{x};
    AttentionInputs in = basic(z, read);
    in.pre = stage(p, read);
    in.post = stage(p, read);
    return attention(in, Implementation::fused);
  };
  const auto mixture = [&](const std::vector<at::Tensor>& x) {
    Reader read{x};
    AttentionInputs in = basic(z, read);
    in.mixture = Mixture{.more_keys = {}, .shift = x.back(), .coefficient = at::full({2}, 0.1F)};
    return attention(in, Implementation::fused);
  };
  for (const auto& op : std::vector<std::function<at::Tensor(const std::vector<at::Tensor>&)>>{composed, mixture}) {
    testing::expect_threads_change_nothing(op, inputs.leaves(), "heads");
  }
  for (const Combination& c : all_combinations()) {
    Inputs its(at::kFloat);
    make_combination(z, c, its);
    testing::expect_threads_change_nothing(
        [&](const auto& x) { return attention(combination(z, c, x), Implementation::fused); }, its.leaves(), c.name());
  }
}

TEST(FusedHeads, WhatIsNotFusedSaysWhy) {
  at::manual_seed(4);
  AttentionInputs in{.q = at::randn({1, 2, 4, 3}), .k = at::randn({1, 2, 4, 3}), .v = at::randn({1, 2, 4, 3})};
  in.mixture = Mixture{.more_keys = {at::randn({1, 2, 4, 3})}};
  in.mixture->coefficient = at::rand({2}).requires_grad_(true);
  EXPECT_THROW(attention(in, Implementation::fused), MisuseError);
  in.mixture.reset();
  in.pre = HeadMap{.n_groups = 1, .skip = true, .fixed = at::randn({1, 2, 2}), .query = {}, .key = {}};
  in.post = HeadMap{.n_groups = 2, .skip = true, .fixed = at::randn({2, 1, 1}), .query = {}, .key = {}};
  EXPECT_THROW(attention(in, Implementation::fused), MisuseError);
}

}  // namespace fused_heads_test
}  // namespace headroom::ops
