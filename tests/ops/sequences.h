// Whole sequences for attention of every kind: scores, relative positions and compositions in all combinations.
#pragma once

#include <cmath>

#include "bfloat16.h"
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

}  // namespace headroom::testing::sequences
