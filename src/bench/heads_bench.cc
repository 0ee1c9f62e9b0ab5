// Attention with composed heads and with mixtures of keys, each against the reference and against plain attention.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "headroom/ops/attention.h"
#include "headroom/ops/linear_attention.h"
#include "timing.h"

namespace headroom::bench {
namespace {

using ops::AttentionInputs;

struct Sizes {
  std::int64_t b, h, t, e;
  std::string name() const { return fmt::format("B{} H{} T{} e{}", b, h, t, e); }
};

struct Case {
  at::TensorOptions type;
  AttentionInputs in;
  std::vector<at::Tensor> leaves;

  Case(const Sizes& z, const BenchOptions& options) : type(type_of(options)) {
    in.q = leaf({z.b, z.h, z.t, z.e});
    in.k = leaf({z.b, z.h, z.t, z.e});
    in.v = leaf({z.b, z.h, z.t, z.e});
    in.scale = 1.0 / std::sqrt(static_cast<double>(z.e));
  }

  at::Tensor leaf(at::IntArrayRef shape, double size = 1.0) {
    leaves.push_back(at::randn(shape).mul_(size).to(type).requires_grad_(true));
    return leaves.back();
  }

  Work forward_backward(Implementation implementation) const {
    const at::Tensor weight = at::randn_like(in.q.detach());
    return [=, *this] { torch::autograd::grad({ops::attention(in, implementation)}, leaves, {weight}); };
  }
};

ops::HeadMap random_map(Case& c, const Sizes& z, std::int64_t rank) {
  const auto side = [&] {
    return ops::HeadMapSide{.factors = c.leaf({z.b, z.t, (2 * rank + 1) * z.h}, 0.3), .rank = rank, .has_gate = true};
  };
  ops::HeadMap map;
  map.query = side();
  map.key = side();
  return map;
}

ops::Mixture two_keys(Case& c, const Sizes& z, bool shifted) {
  ops::Mixture mixture;
  if (shifted) {
    mixture.shift = c.leaf({2, z.h, 1, z.e});
  } else {
    mixture.more_keys = {c.leaf({z.b, z.h, z.t, z.e})};
  }
  mixture.coefficient = at::full({2}, 0.5 * c.in.scale, c.type);
  mixture.prior = at::full({2, z.h, 1}, 0.5, c.type.dtype(at::kFloat)).requires_grad_(true);
  c.leaves.push_back(*mixture.prior);
  return mixture;
}

Row row(const std::string& name, double seconds, double reference) {
  return {.name = name, .seconds = seconds, .ratio_to_reference = reference / seconds};
}

}  // namespace

std::vector<Row> composition(const BenchOptions& options) {
  std::vector<Row> rows;
  for (const Sizes& z : std::vector<Sizes>{{4, 8, 512, 64}, {4, 8, 1024, 64}, {2, 16, 512, 64}, {2, 16, 1024, 64}}) {
    const Case plain(z, options);
    Case composed(z, options);
    composed.in.pre = random_map(composed, z, 2);
    composed.in.post = random_map(composed, z, 2);
    const std::vector<double> times = medians_in_turn(
        {composed.forward_backward(Implementation::reference), composed.forward_backward(Implementation::fused),
         plain.forward_backward(Implementation::fused)},
        options);
    rows.push_back(row(z.name() + ": reference", times[0], times[0]));
    rows.push_back(row(z.name() + ": fused", times[1], times[0]));
    rows.push_back(row(z.name() + ": fused, not composed", times[2], times[0]));
  }
  return rows;
}

std::vector<Row> mixture(const BenchOptions& options) {
  std::vector<Row> rows;
  for (const Sizes& z : std::vector<Sizes>{{8, 8, 256, 64}, {4, 8, 1024, 64}, {4, 16, 512, 64}}) {
    const Sizes half{z.b, z.h / 2, z.t, z.e};
    const Case all(z, options);
    Case own(half, options), shifted(half, options);
    own.in.mixture = two_keys(own, half, false);
    shifted.in.mixture = two_keys(shifted, half, true);
    const std::vector<double> times =
        medians_in_turn({own.forward_backward(Implementation::reference), own.forward_backward(Implementation::fused),
                         shifted.forward_backward(Implementation::reference),
                         shifted.forward_backward(Implementation::fused), all.forward_backward(Implementation::fused)},
                        options);
    rows.push_back(row(half.name() + " own keys: reference", times[0], times[0]));
    rows.push_back(row(half.name() + " own keys: fused", times[1], times[0]));
    rows.push_back(row(half.name() + " shifted keys: reference", times[2], times[2]));
    rows.push_back(row(half.name() + " shifted keys: fused", times[3], times[2]));
    rows.push_back(row(z.name() + " one key: fused", times[4], times[0]));
  }
  return rows;
}

std::vector<Row> linear_attention(const BenchOptions& options) {
  std::vector<Row> rows;
  for (const Sizes& z : std::vector<Sizes>{{8, 8, 256, 64}, {4, 8, 1024, 64}, {1, 8, 8192, 64}}) {
    const Case softmax(z, options);
    std::vector<at::Tensor> leaves;
    for (int i = 0; i < 3; ++i) {
      leaves.push_back(at::rand({z.b, z.h, z.t, z.e}).to(softmax.type).requires_grad_(true));
    }
    const ops::LinearAttentionInputs in{.q = leaves[0], .k = leaves[1], .v = leaves[2], .epsilon = 1e-3};
    const at::Tensor weight = at::randn_like(leaves[0].detach());
    const auto work = [&](Implementation implementation) -> Work {
      return [=] { torch::autograd::grad({ops::linear_attention(in, implementation)}, leaves, {weight}); };
    };
    const std::vector<double> times = medians_in_turn(
        {work(Implementation::reference), work(Implementation::fused), softmax.forward_backward(Implementation::fused)},
        options);
    rows.push_back(row(z.name() + ": reference", times[0], times[0]));
    rows.push_back(row(z.name() + ": fused", times[1], times[0]));
    rows.push_back(row(z.name() + ": softmax attention, fused", times[2], times[0]));
  }
  return rows;
}

}  // namespace headroom::bench
