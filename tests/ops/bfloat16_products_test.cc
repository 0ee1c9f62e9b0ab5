// Fused products in bfloat16 (bfloat16.h): linear attention, the dense product, products with experts.
#include "bfloat16.h"
#include "headroom/ops/expert_linear.h"
#include "headroom/ops/linear.h"
#include "headroom/ops/linear_attention.h"

namespace headroom::ops {
namespace bfloat16_products_test {

using namespace testing::bfloat16;

// Result and gradients are rounded once each. float32's share as in LinearAttention.FusedEqualsReferenceInFloat, with
// an epsilon as large as the sum of the weights.
TEST(Bfloat16, LinearAttention) {
  for (const Sizes& z : kSizes) {
    if (z.window > 0) {
      continue;
    }
    at::manual_seed(5);
    Tensors inputs = heads_of(z);
    for (const std::size_t features : {0, 1}) {
      inputs[features] = inputs[features].abs();
    }
    const auto with = [&](Implementation implementation) {
      return [&, implementation](const Tensors& x) {
        LinearAttentionInputs in{.q = x[0], .k = x[1], .v = x[2], .causal = z.causal, .valid_keys = {}};
        in.valid_keys = mask_of(z).valid_keys;
        in.epsilon = static_cast<double>(z.s * z.e);
        return linear_attention(in, implementation);
      };
    };
    const Result got = run_fused("linear_attention", with(Implementation::automatic), inputs);
    const Result exact = result_of(with(Implementation::reference), testing::in_double(inputs));
    expect_within(got.value, exact.value,
                  {.rounded = exact.value.abs(), .moved = {}, .single = 1e-5 * largest(exact.value)}, z.name());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      expect_within(got.gradients[i], exact.gradients[i],
                    {.rounded = exact.gradients[i].abs(), .moved = {}, .single = 1e-5 * largest(exact.gradients[i])},
                    z.name() + fmt::format(": gradient {}", i));
    }
  }
}

// float32's share of a sum of n products: n roundings of 2^-24 each of the products' absolute values.
at::Tensor single(const at::Tensor& a, const at::Tensor& b) {
  return a.abs().matmul(b.abs()) * (static_cast<double>(a.size(-1)) * std::pow(2.0, -24));
}

// x W may be rounded before the bias comes to it; otherwise each result once.
TEST(Bfloat16, Linear) {
  for (const auto& [n, d_in, d_out] :
       std::vector<std::array<std::int64_t, 3>>{{64, 64, 96}, {67, 41, 13}, {127, 131, 257}}) {
    at::manual_seed(6);
    const Tensors inputs = {bfloat({n, d_in}), bfloat({d_in, d_out}), bfloat({d_out})};
    const Result got = run_fused(
        "linear", [](const Tensors& x) { return ops::linear(x[0], x[1], x[2]); }, inputs);
    const Tensors wide = testing::in_double(inputs);
    const at::Tensor &x = wide[0], &w = wide[1], product = x.matmul(w), value = product + wide[2];
    const at::Tensor grad = arriving(value), ones = at::ones({1, n}, at::kDouble);
    const std::string what = fmt::format("N {} {}x{}", n, d_in, d_out);
    const auto expect = [&](const at::Tensor& result, const at::Tensor& a, const at::Tensor& b, const char* name) {
      const at::Tensor exact = a.matmul(b);
      expect_within(result.view(exact.sizes()), exact, {.rounded = exact.abs(), .moved = single(a, b)}, what + name);
    };
    expect_within(got.value, value, {.rounded = product.abs() + value.abs(), .moved = single(x, w)}, what);
    expect(got.gradients[0], grad, w.t(), ": x");
    expect(got.gradients[1], x.t(), grad, ": w");
    expect(got.gradients[2], ones, grad, ": b");
  }
}

// Where products are those of float32, results and gradients are rounded once. Where they are those of bfloat16, so is
// each choice's product before it is weighed and summed, and a row times its weight before a matrix's gradient is
// summed.
TEST(Bfloat16, ExpertLinear) {
  struct Case {
    std::int64_t n, heads, choices, experts, d_in, d_out;
    bool per_head, sum_heads, weighted;
  };
  for (const Case& s : {Case{64, 2, 2, 4, 32, 48, false, false, true}, Case{127, 3, 2, 5, 41, 23, true, true, true},
                        Case{131, 2, 1, 3, 13, 67, true, false, false}, Case{67, 2, 2, 4, 71, 17, false, true, true}}) {
    at::manual_seed(7);
    const std::int64_t all = s.n * s.heads * s.choices;
    const at::Tensor index = at::rand({s.n, s.heads, s.experts}).argsort(std::int64_t{-1}).narrow(-1, 0, s.choices) +
                             (at::arange(s.heads) * s.experts).view({1, s.heads, 1});
    const std::vector<std::int64_t> by_row = {s.n, s.d_in}, by_head = {s.n, s.heads, s.d_in};
    Tensors inputs = {bfloat(s.per_head ? by_head : by_row), bfloat({s.heads * s.experts, s.d_in, s.d_out})};
    if (s.weighted) {
      inputs.push_back(at::rand({s.n, s.heads, s.choices}));
    }
    const auto op = [&](Implementation implementation) {
      return [&, implementation](const Tensors& x) {
        return expert_linear({.input = x[0],
                              .bank = x[1],
                              .index = index,
                              .weight = s.weighted ? std::optional(x[2]) : std::nullopt,
                              .sum_heads = s.sum_heads},
                             implementation);
      };
    };
    const Result got = run_fused("expert_linear", op(Implementation::automatic), inputs);
    const Tensors wide = testing::in_double(inputs);
    const Result exact = result_of(op(Implementation::reference), wide);
    // A row for each choice: its input and arriving gradient, its matrix, its weight.
    const auto per_choice = [&](const at::Tensor& t, bool one_a_token) {
      const at::Tensor by_slot = one_a_token ? t.view({s.n, 1, 1, -1}) : t.view({s.n, s.heads, 1, -1});
      return by_slot.expand({s.n, s.heads, s.choices, -1}).reshape({all, 1, -1});
    };
    const at::Tensor x = per_choice(wide[0], !s.per_head), grad = per_choice(arriving(exact.value), s.sum_heads);
    const at::Tensor matrix = wide[1].index_select(0, index.reshape({-1}));
    const at::Tensor weight = s.weighted ? wide[2].reshape({all, 1, 1}) : at::ones({all, 1, 1}, at::kDouble);
    const at::Tensor forth = (x.matmul(matrix) * weight).abs(),
                     back = (grad.matmul(matrix.transpose(1, 2)) * weight).abs();
    const auto sum = [&](const at::Tensor& t, at::IntArrayRef shape, bool one_a_token) {
      const at::Tensor by_slot = t.view({s.n, s.heads, s.choices, -1}).sum(2);
      return (one_a_token ? by_slot.sum(1) : by_slot).view(shape);
    };
    const at::Tensor outer = at::zeros_like(wide[1]).index_add(0, index.reshape({-1}),
                                                               x.transpose(1, 2).abs().matmul((grad * weight).abs()));
    Tensors rounded = {sum(back, wide[0].sizes(), !s.per_head) + exact.gradients[0].abs(),
                       outer + exact.gradients[1].abs()};
    if (s.weighted) {
      rounded.push_back((x * grad.matmul(matrix.transpose(1, 2))).abs().sum(-1).view(wide[2].sizes()));
    }
    const std::string what = fmt::format("N {} H {} K {} {}x{}", s.n, s.heads, s.choices, s.d_in, s.d_out);
    expect_within(got.value, exact.value,
                  {.rounded = sum(forth, exact.value.sizes(), s.sum_heads) + exact.value.abs(),
                   .moved = {},
                   .single = 2e-6 * largest(exact.value)},
                  what);
    for (std::size_t i = 0; i < rounded.size(); ++i) {
      expect_within(got.gradients[i], exact.gradients[i],
                    {.rounded = rounded[i], .moved = {}, .single = 2e-6 * largest(exact.gradients[i])},
                    what + fmt::format(": gradient {}", i));
    }
  }
}

}  // namespace bfloat16_products_test
}  // namespace headroom::ops
