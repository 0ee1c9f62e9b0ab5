// Linear attention, linear and expert_linear in bfloat16 (bfloat16.h).
#include "attention_cases.h"
#include "bfloat16.h"
#include "engine/kernels/cpu/matmul/bfloat16.h"
#include "expert_linear_cases.h"
#include "headroom/ops/linear.h"
#include "headroom/ops/linear_attention.h"

namespace headroom::ops {
namespace bfloat16_matmul_test {

using namespace testing::bfloat16;

// Sums of absolute values that are rounded on the way if the CPU multiplies in bfloat16. With
//   a_ij = q_i . k_j >= 0,  W_i = sum_j a_ij,  D_i = W_i + epsilon,  o_i = sum_j a_ij v_j / D_i,  O_i the same with |v|
// each a_ij, or the state that it is part of, is rounded before it is multiplied with v_j or added to W_i. Float32
// features q and k are rounded before that: m = 1 or 3 roundings. The error of o_i is at most m u (O_i + |o_i|). The
// gradients of the sums are g_i / D_i, with relative error m u, and -(g_i . o_i) / D_i, at most |g_i| . O_i / D_i, with
// 3 m u of that. They are rounded, so are the factors they are multiplied with, and features once more: at most 3 m + 3
// roundings.
struct Roundings {
  at::Tensor value;
  Tensors gradients;
};

Roundings linear_roundings(const AttentionCase& z, const at::Tensor& valid, const Tensors& wide, double epsilon,
                           double m) {
  const Tensors leaves = with_gradients({wide[0], wide[1], wide[2].abs()});
  const auto heads = [&](const at::Tensor& t) { return t.repeat_interleave(z.h / z.g, 1); };
  at::Tensor a = leaves[0].matmul(heads(leaves[1]).transpose(2, 3));
  a = z.causal ? a.tril(z.s - z.t) : a;
  a = valid.defined() ? a * valid.to(at::kDouble).unsqueeze(1).unsqueeze(1) : a;
  const at::Tensor values = a.matmul(heads(leaves[2])), weight = a.sum(-1, true), all = (weight + epsilon).detach();
  const at::Tensor o = (a.matmul(heads(wide[2])) / all).detach(), largest_o = (values / all).detach();
  const at::Tensor g = arriving(o).abs() / all, g_weight = (g * largest_o).sum(-1, true);
  Tensors gradients = torch::autograd::grad({(g * values).sum() + (g_weight * weight).sum()}, leaves);
  for (at::Tensor& gradient : gradients) {
    gradient = gradient * (3.0 * m + 3.0);
  }
  return {(largest_o + o.abs()) * m, gradients};
}

// Result and gradients are rounded once each to the arguments' dtypes. float32's error is that of the cases, with an
// epsilon as large as the sum of the weights.
void expect_linear_attention(const AttentionCase& z, at::ScalarType features) {
  at::manual_seed(5);
  const AttentionInputs heads = z.inputs({at::kBFloat16});
  const std::optional<at::Tensor> valid = heads.mask.valid_keys;
  Tensors inputs = {heads.q, heads.k, heads.v};
  for (const std::size_t i : {0, 1}) {
    inputs[i] = features == at::kFloat ? at::rand(inputs[i].sizes()).add(0.01) : inputs[i].abs();
  }
  const auto epsilon = static_cast<double>(z.s * z.e);
  const auto with = [&](Implementation implementation) {
    return [&, implementation](const Tensors& x) {
      LinearAttentionInputs in{.q = x[0], .k = x[1], .v = x[2], .causal = z.causal, .valid_keys = valid};
      in.epsilon = epsilon;
      return linear_attention(in, implementation);
    };
  };
  const std::string what = z.name() + " features " + at::toString(features);
  const Result got = run_fused("linear_attention", with(Implementation::automatic), inputs);
  const Tensors wide = testing::in_double(inputs);
  const Result exact = result_of(with(Implementation::reference), wide);
  const Roundings way =
      linear_roundings(z, valid.value_or(at::Tensor()), wide, epsilon, features == at::kFloat ? 3.0 : 1.0);
  const auto expect = [&](const at::Tensor& result, const at::Tensor& expected, const at::Tensor& parts,
                          const std::string& which) {
    const at::Tensor own = itself(expected, result);
    expect_within(
        result, expected,
        {.rounded = kernels::has_fast_bfloat16() ? own + parts : own, .moved = {}, .single = 1e-5 * largest(expected)},
        what + which);
  };
  expect(got.value, exact.value, way.value, ": value");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_EQ(got.gradients[i].scalar_type(), inputs[i].scalar_type()) << what;
    expect(got.gradients[i], exact.gradients[i], way.gradients[i], fmt::format(": gradient {}", i));
  }
}

TEST(Bfloat16, LinearAttention) {
  for (const AttentionCase& z : attention_cases(Role::bfloat16)) {
    if (z.window == 0 && !z.relative && !z.composed && !z.mixture && !z.sink) {
      expect_linear_attention(z, at::kBFloat16);
      expect_linear_attention(z, at::kFloat);  // as the layers compute features
    }
  }
}

// float32's error of a sum of n products: n roundings of 2^-24 relative to the products' absolute values.
at::Tensor single(const at::Tensor& a, const at::Tensor& b) {
  return a.abs().matmul(b.abs()) * (static_cast<double>(a.size(-1)) * std::pow(2.0, -24));
}

// x W may be rounded before the bias is added. Otherwise each result is rounded once.
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

// Results and gradients are rounded once. If the CPU multiplies in bfloat16, each assignment's result is also rounded
// before it is weighted and summed, and a row times its weight before it is added to a matrix's gradient.
TEST(Bfloat16, ExpertLinear) {
  for (const ExpertLinearCase& s : expert_linear_cases(Role::bfloat16)) {
    at::manual_seed(7);
    const std::int64_t all = s.n * s.heads * s.choices;
    const ExpertLinearInputs given = s.inputs({at::kBFloat16});
    const at::Tensor& index = given.index;
    // The bank starts in the middle of a 32-bit word.
    const at::Tensor numbers = bfloat({1 + given.bank.numel()});
    Tensors inputs = {given.input, numbers.narrow(0, 1, given.bank.numel()).view(given.bank.sizes())};
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
    // One row for each assignment: its input, incoming gradient, matrix and weight.
    const auto per_choice = [&](const at::Tensor& t, bool per_token) {
      const at::Tensor by_slot = per_token ? t.view({s.n, 1, 1, -1}) : t.view({s.n, s.heads, 1, -1});
      return by_slot.expand({s.n, s.heads, s.choices, -1}).reshape({all, 1, -1});
    };
    const at::Tensor x = per_choice(wide[0], !s.per_head), grad = per_choice(arriving(exact.value), s.sum_heads);
    const at::Tensor matrix = wide[1].index_select(0, index.reshape({-1}));
    const at::Tensor weight = s.weighted ? wide[2].reshape({all, 1, 1}) : at::ones({all, 1, 1}, at::kDouble);
    const at::Tensor forth = (x.matmul(matrix) * weight).abs(),
                     back = (grad.matmul(matrix.transpose(1, 2)) * weight).abs();
    const auto sum = [&](const at::Tensor& t, at::IntArrayRef shape, bool per_token) {
      const at::Tensor by_slot = t.view({s.n, s.heads, s.choices, -1}).sum(2);
      return (per_token ? by_slot.sum(1) : by_slot).view(shape);
    };
    const at::Tensor outer = at::zeros_like(wide[1]).index_add(0, index.reshape({-1}),
                                                               x.transpose(1, 2).abs().matmul((grad * weight).abs()));
    Tensors rounded = {sum(back, wide[0].sizes(), !s.per_head) + exact.gradients[0].abs(),
                       outer + exact.gradients[1].abs()};
    if (s.weighted) {
      rounded.push_back((x * grad.matmul(matrix.transpose(1, 2))).abs().sum(-1).view(wide[2].sizes()));
    }
    const std::string what = s.name();
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

}  // namespace bfloat16_matmul_test
}  // namespace headroom::ops
