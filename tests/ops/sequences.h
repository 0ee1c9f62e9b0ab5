// Whole sequences for attention of every kind: scores, relative positions and compositions in all combinations.
#pragma once

#include <cmath>

#include "bfloat16.h"
#include "gradients.h"
#include "headroom/ops/attention.h"

namespace headroom::testing::sequences {

using bfloat16::Sizes;
using ops::AttentionInputs;
using ops::HeadMap;
using ops::HeadMapSide;
using ops::Mixture;

struct Kind {
  bool composed, relative;
  enum Scores { dot, own_keys, shifted, shifted_by_position, best } scores;
  std::string name() const {
    return fmt::format(" composed {} relative {} scores {}", composed, relative, static_cast<int>(scores));
  }
};

inline std::vector<Kind> all_kinds() {
  std::vector<Kind> all;
  for (const bool composed : {false, true}) {
    for (const bool relative : {false, true}) {
      for (const auto scores : {Kind::dot, Kind::own_keys, Kind::shifted, Kind::shifted_by_position, Kind::best}) {
        all.push_back({composed, relative, scores});
      }
    }
  }
  return all;
}

// A part of a larger tensor along `axis`.
inline at::Tensor cached(const at::Tensor& t, std::int64_t axis) {
  std::vector<std::int64_t> shape = t.sizes().vec();
  shape[static_cast<std::size_t>(axis)] += 5;
  const at::Tensor part = at::zeros(shape, t.options()).narrow(axis, 2, t.size(axis));
  return part.copy_(t);
}

// A whole sequence, its numbers exact in `type`; parameters are float32.
inline AttentionInputs sequence(const Sizes& z, const Kind& kind, at::ScalarType type) {
  const auto random = [&](at::IntArrayRef shape, double size = 1.0) { return (at::randn(shape) * size).to(type); };
  const auto heads = [&](std::int64_t n) { return cached(random({z.b, n, z.s, z.e}), 2); };
  AttentionInputs in{.q = heads(z.h), .k = heads(z.g), .v = heads(z.g)};
  in.v = in.v.transpose(1, 2).contiguous().transpose(1, 2);  // by token
  in.scale = 0.7 / std::sqrt(static_cast<double>(z.e));
  in.mask = {.causal = z.causal, .window = z.window};
  if (z.padded) {
    in.mask.valid_keys = at::arange(z.b * z.s).view({z.b, z.s}).remainder(3).ne(1);
    in.mask.valid_keys->narrow(1, 0, 2).fill_(false);  // the first rows see nothing
  }
  if (kind.relative) {
    in.q_position = heads(z.h);
    in.r = cached(random({z.h, z.s, z.e}), 1);
  }
  if (kind.scores != Kind::dot) {
    in.mixture = Mixture{.more_keys = {}};
    if (kind.scores == Kind::own_keys || kind.scores == Kind::best) {
      in.mixture->more_keys = {heads(z.g), heads(z.g)};
    } else {
      in.mixture->shift = at::randn({3, z.g, kind.scores == Kind::shifted ? 1 : z.s, z.e});
    }
    in.mixture->coefficient = at::arange(1, 4) * 0.05;
    in.mixture->maximum = kind.scores == Kind::best;
    if (!in.mixture->maximum) {
      in.mixture->prior = at::rand({3, z.g, z.s}).add(0.2);
      in.mixture->epsilon = 0.5;
    }
  }
  for (std::optional<HeadMap>* map : {&in.pre, &in.post}) {
    if (kind.composed) {
      const auto side = [&] { return HeadMapSide{cached(random({z.b, z.s, 5 * z.h}, 0.5), 1), 2, true}; };
      *map = HeadMap{.n_groups = 1, .skip = true, .fixed = at::randn({1, z.h, z.h}) * 0.3, .query = {}, .key = {}};
      (*map)->query = side();
      (*map)->key = side();
    }
  }
  return in;
}

// The floating tensors that a gradient goes to.
inline std::vector<at::Tensor*> leaves_of(AttentionInputs& in) {
  std::vector<at::Tensor*> all = {&in.q, &in.k, &in.v};
  const auto add = [&](std::optional<at::Tensor>& t) {
    if (t) {
      all.push_back(&*t);
    }
  };
  add(in.q_position);
  add(in.r);
  add(in.bias);
  add(in.sink);
  if (in.mixture) {
    for (at::Tensor& key : in.mixture->more_keys) {
      all.push_back(&key);
    }
  }
  for (std::optional<HeadMap>* map : {&in.pre, &in.post}) {
    if (*map) {
      add((*map)->fixed);
      all.insert(all.end(), {&(*map)->query.factors, &(*map)->key.factors});
    }
  }
  return all;
}

// The result and all gradients, the leaves in `type`.
inline Evaluated evaluate_in(AttentionInputs in, at::ScalarType type, Implementation implementation) {
  std::vector<at::Tensor> values;
  for (const at::Tensor* leaf : leaves_of(in)) {
    values.push_back(leaf->to(type));
  }
  return evaluate(
      [&](const std::vector<at::Tensor>& x) {
        std::size_t i = 0;
        for (at::Tensor* leaf : leaves_of(in)) {
          *leaf = x[i++];
        }
        return ops::attention(in, implementation);
      },
      values);
}

// In float32 against float64. Errors count relative to the tensor's largest entry, of a gradient at least to a tenth
// of the largest of all: some vanish by cancellation.
inline void expect_fused_equals_reference(const AttentionInputs& in, double bound, const std::string& name) {
  const Evaluated got = evaluate_in(in, at::kFloat, Implementation::fused),
                  expected = evaluate_in(in, at::kDouble, Implementation::reference);
  ASSERT_EQ(got.value.sizes(), expected.value.sizes()) << name;
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

}  // namespace headroom::testing::sequences
