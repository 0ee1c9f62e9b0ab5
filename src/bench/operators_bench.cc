#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "headroom/ops/adamw.h"
#include "headroom/ops/attention.h"
#include "headroom/ops/expert_linear.h"
#include "headroom/ops/linear.h"
#include "headroom/ops/linear_cross_entropy.h"
#include "timing.h"

namespace headroom::bench {
namespace {

at::Tensor leaf(at::IntArrayRef shape, at::TensorOptions type) {
  return at::randn(shape).to(type).requires_grad_(true);
}

// Forward and backward for all leaves.
Work forward_backward(std::function<at::Tensor()> op, std::vector<at::Tensor> leaves) {
  const at::Tensor weight = at::randn_like(op());
  return [op = std::move(op), leaves = std::move(leaves), weight] {
    const at::Tensor y = op();
    torch::autograd::grad({y}, leaves, {weight});
  };
}

Row compare(std::string name, double seconds, double reference, double flops, const BenchOptions& options) {
  const double gflops = flops / seconds * 1e-9;
  return {.name = std::move(name),
          .seconds = seconds,
          .gflops = gflops,
          .ratio_to_reference = reference / seconds,
          .fraction_of_limit = gflops / machine_limits(options).product_gflops};
}

struct AttentionSizes {
  std::int64_t b, h, t, s, e;
  bool relative;
};

void attention_rows(const AttentionSizes& z, const BenchOptions& options, std::vector<Row>& rows) {
  const at::TensorOptions type = type_of(options);
  const at::Tensor q = leaf({z.b, z.h, z.t, z.e}, type), k = leaf({z.b, z.h, z.s, z.e}, type),
                   v = leaf({z.b, z.h, z.s, z.e}, type);
  std::vector<at::Tensor> leaves = {q, k, v};
  ops::AttentionInputs in{.q = q, .k = k, .v = v, .scale = 1.0 / std::sqrt(static_cast<double>(z.e))};
  if (z.relative) {
    in.q_position = leaf({z.b, z.h, z.t, z.e}, type);
    in.r = leaf({z.h, z.s, z.e}, type);
    leaves.push_back(*in.q_position);
    leaves.push_back(*in.r);
  }
  std::vector<Work> work = {forward_backward([in] { return ops::attention(in, Implementation::reference); }, leaves),
                            forward_backward([in] { return ops::attention(in, Implementation::fused); }, leaves)};
  if (!z.relative) {
    const std::optional<at::Tensor> mask =
        z.t == z.s ? std::nullopt : std::optional(at::ones({z.t, z.s}, q.options().dtype(at::kBool)).tril_(z.s - z.t));
    work.push_back(forward_backward(
        [=] { return at::scaled_dot_product_attention(q, k, v, mask, 0.0, z.t == z.s, in.scale); }, leaves));
  }
  const std::vector<double> times = medians_in_turn(work, options);
  // Visible pairs only: 2 products forward, 5 backward (and 1 + 3 for positions), 2 operations a MAC.
  const double pairs = static_cast<double>(z.b * z.h) * static_cast<double>(z.t) *
                       (static_cast<double>(z.s) - 0.5 * static_cast<double>(z.t - 1));
  const double flops = 2.0 * pairs * static_cast<double>(z.e) * (z.relative ? 11.0 : 7.0);
  const std::string name = fmt::format("B{} H{} T{} S{} e{}{}", z.b, z.h, z.t, z.s, z.e, z.relative ? " relative" : "");
  rows.push_back(compare(name + ": reference", times[0], times[0], flops, options));
  rows.push_back(compare(name + ": fused", times[1], times[0], flops, options));
  if (times.size() > 2) {
    rows.push_back(compare(name + ": PyTorch SDPA", times[2], times[0], flops, options));
  }
}

}  // namespace

std::vector<Row> attention(const BenchOptions& options) {
  std::vector<Row> rows;
  for (const AttentionSizes& z : std::vector<AttentionSizes>{{8, 8, 256, 256, 64, false},
                                                             {8, 10, 256, 512, 41, false},
                                                             {8, 2, 256, 512, 76, false},
                                                             {4, 16, 512, 1024, 64, false},
                                                             {4, 8, 1024, 1024, 64, false},
                                                             {8, 10, 256, 512, 41, true},
                                                             {8, 2, 256, 512, 76, true}}) {
    attention_rows(z, options, rows);
  }
  return rows;
}

std::vector<Row> expert_linear(const BenchOptions& options) {
  struct Sizes {
    const char* name;
    std::int64_t n, heads, experts, k, d_in, d_out;
    bool per_head, sum;
  };
  std::vector<Row> rows;
  const at::TensorOptions type = type_of(options);
  for (const Sizes& z : std::vector<Sizes>{{"values 47M", 8 * 512, 2, 5, 2, 412, 76, false, false},
                                           {"output 47M", 8 * 256, 2, 5, 2, 76, 412, true, true},
                                           {"values 262M", 2 * 1024, 4, 4, 2, 1024, 112, false, false},
                                           {"sigma-MoE up 47M", 8 * 256, 4, 16, 1, 412, 128, false, false}}) {
    const bool slots = z.k == 1;  // an expert MLP: slots share one bank
    const at::Tensor input = z.per_head ? leaf({z.n, z.heads, z.d_in}, type) : leaf({z.n, z.d_in}, type);
    const at::Tensor bank = leaf({slots ? z.experts : z.heads * z.experts, z.d_in, z.d_out}, type);
    at::Tensor index;
    if (slots) {
      index = at::rand({z.n, z.experts}).argsort(std::int64_t{-1}).narrow(1, 0, z.heads).unsqueeze(2);
    } else {
      index = at::rand({z.n, z.heads, z.experts}).argsort(std::int64_t{-1}).narrow(2, 0, z.k) +
              (at::arange(z.heads) * z.experts).view({1, z.heads, 1});
    }
    index = index.to(type.device());
    const at::Tensor weight = at::rand(index.sizes(), type.device()).requires_grad_(true);
    const at::Tensor dense_in = leaf({z.n * z.heads * z.k, z.d_in}, type), dense_w = leaf({z.d_in, z.d_out}, type);
    const auto op = [=](Implementation impl) {
      return [=] {
        return ops::expert_linear({.input = input, .bank = bank, .index = index, .weight = weight, .sum_heads = z.sum},
                                  impl);
      };
    };
    const std::vector<double> times =
        medians_in_turn({forward_backward(op(Implementation::reference), {input, bank, weight}),
                         forward_backward(op(Implementation::fused), {input, bank, weight}),
                         forward_backward([=] { return ops::linear(dense_in, dense_w); }, {dense_in, dense_w})},
                        options);
    const double flops = 6.0 * static_cast<double>(z.n * z.heads * z.k * z.d_in * z.d_out);
    rows.push_back(compare(fmt::format("{}: reference", z.name), times[0], times[0], flops, options));
    rows.push_back(compare(fmt::format("{}: fused", z.name), times[1], times[0], flops, options));
    rows.push_back(compare(fmt::format("{}: dense product", z.name), times[2], times[0], flops, options));
  }
  return rows;
}

std::vector<Row> cross_entropy(const BenchOptions& options) {
  const std::int64_t n = 2048, d = 512, v = 8000;
  const at::TensorOptions type = type_of(options);
  const at::Tensor x = leaf({n, d}, type), w = leaf({d, v}, type), b = leaf({v}, type);
  const at::Tensor target = at::randint(v, {n}, type.dtype(at::kLong));
  const auto op = [=](Implementation impl) { return [=] { return ops::linear_cross_entropy(x, w, b, target, impl); }; };
  const std::vector<double> times = medians_in_turn({forward_backward(op(Implementation::reference), {x, w, b}),
                                                     forward_backward(op(Implementation::fused), {x, w, b})},
                                                    options);
  const double flops = 6.0 * static_cast<double>(n * d * v);
  return {compare("N2048 d512 V8000: reference", times[0], times[0], flops, options),
          compare("N2048 d512 V8000: fused", times[1], times[0], flops, options)};
}

std::vector<Row> adamw(const BenchOptions& options) {
  const std::int64_t n = std::int64_t{1} << 24;
  const at::Device device(options.device);
  const std::vector<at::Tensor> p = {at::randn({n}, device)}, g = {at::randn({n}, device)},
                                m = {at::zeros({n}, device)}, v = {at::zeros({n}, device)};
  const auto step_with = [&](Implementation impl) {
    return [&, impl] { ops::adamw_step(p, g, m, v, 10, {.gradient_scale = 0.5, .implementation = impl}); };
  };
  const std::vector<double> times =
      medians_in_turn({step_with(Implementation::reference), step_with(Implementation::fused)}, options);
  std::vector<Row> rows;
  for (const auto& [name, seconds] :
       {std::pair{"16.8M numbers: reference", times[0]}, {"16.8M numbers: fused", times[1]}}) {
    const double bytes = static_cast<double>(n) * 4.0 * 7.0;  // reads p, g, m, v, writes p, m, v
    rows.push_back({.name = name,
                    .seconds = seconds,
                    .ratio_to_reference = times[0] / seconds,
                    .fraction_of_limit = bytes / seconds * 1e-9 / machine_limits("fp32", device).bandwidth_gb});
  }
  return rows;
}

}  // namespace headroom::bench
