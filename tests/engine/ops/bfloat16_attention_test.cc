// Fused attention in bfloat16 (bfloat16.h): plain, relative positions, composed heads, mixtures of keys, sinks.
#include <limits>

#include "attention_cases.h"
#include "bfloat16.h"
#include "engine/kernels/cpu/matmul/bfloat16.h"
#include "engine/ops/attention/attention_operator.h"

namespace headroom::ops {
namespace bfloat16_attention_test {

using namespace testing::bfloat16;

// visible_keys(), all true if it is undefined.
at::Tensor visible(const AttentionCase& z, const AttentionMask& mask) {
  const at::Tensor seen = visible_keys(mask, z.t, z.s, at::kCPU);
  return seen.defined() ? seen : at::ones({z.t, z.s}, at::kBool);
}

// log sum_j exp(score_ij) over the visible keys, including a mixture's epsilon.
at::Tensor log_sums(const at::Tensor& visible, const at::Tensor& scores, double epsilon) {
  const at::Tensor sums =
      scores.masked_fill(visible.logical_not(), -std::numeric_limits<double>::infinity()).logsumexp(at::IntArrayRef{3});
  return epsilon > 0.0 ? at::logaddexp(sums, at::full({}, std::log(epsilon), at::kDouble)) : sums;
}

using Make = std::function<AttentionInputs(const Tensors&)>;

at::Tensor for_heads(const at::Tensor& t, const AttentionCase& z) {
  return t.repeat_interleave(z.h / z.g, 1);
}

// Sums of absolute values that are rounded on the way if the CPU multiplies in bfloat16: probabilities before they are
// multiplied with values or dO, and score gradients before they are multiplied with queries, keys and offsets.
struct Roundings {
  at::Tensor value;
  Tensors gradients;  // undefined: none
};

// The gradient of one query-key dot product of a mixture.
struct ProductGradient {
  at::Tensor d;     // [B, H, T, S]
  std::size_t key;  // index of its keys among the inputs
};

void add(at::Tensor& to, const at::Tensor& more) {
  to = to.defined() ? to + more : more;
}

// The intermediate values that the bounds depend on.
struct Stages {
  at::Tensor scores, probs_composed;
};

at::Tensor attention_with(Stages& stages, const AttentionInputs& in) {
  return attention_reference(in, [&](AttentionStage stage, const at::Tensor& value) {
    if (stage == AttentionStage::scores) {
      stages.scores = value;
    } else if (stage == AttentionStage::probs_composed) {
      stages.probs_composed = value;
    }
    return value;
  });
}

Roundings attention_roundings(const AttentionCase& z, const Make& make, const Tensors& exact, const Stages& stages,
                              const at::Tensor& d_scores, const std::vector<ProductGradient>& products) {
  Roundings sums{.value = at::zeros({}, at::kDouble), .gradients = Tensors(exact.size())};
  if (!kernels::has_fast_bfloat16()) {
    return sums;
  }
  Tensors sizes;
  for (const at::Tensor& t : exact) {
    sizes.push_back(t.detach().abs());
  }
  const Tensors leaves = with_gradients(sizes);
  const at::Tensor value = stages.probs_composed.detach().abs().matmul(for_heads(leaves[2], z));
  sums.value = value.detach();
  sums.gradients[2] = torch::autograd::grad({value}, {leaves[2]}, {arriving(value).abs()})[0];
  if (products.empty()) {  // with positive inputs, the gradients are the sums of absolute values
    Stages positive;
    attention_with(positive, make(leaves));
    const Tensors parts =
        torch::autograd::grad({positive.scores}, leaves, {d_scores.abs()}, false, false, /*allow_unused=*/true);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (parts[i].defined()) {
        add(sums.gradients[i], parts[i]);
      }
    }
  }
  for (const ProductGradient& product : products) {
    const at::Tensor together = leaves[0].matmul(for_heads(leaves[product.key], z).transpose(2, 3));
    const Tensors parts = torch::autograd::grad({together}, {leaves[0], leaves[product.key]}, {product.d.abs()});
    add(sums.gradients[0], parts[0]);
    add(sums.gradients[product.key], parts[1]);
  }
  return sums;
}

// The result o and each gradient are rounded once; `rounded` replaces this for gradients that are sums of several
// rounded parts, and attention_roundings() is added. The backward pass of p = softmax(s) needs D_i = dO_i . o_i, which
// it may compute from the rounded o: then dS_ij = p_ij (dP_ij - D_i) changes by -p_ij dD_i, dD_i = dO_i . (rounded o_i
// - o_i), and the gradient of any theta by -sum_ij p_ij dD_i ds_ij/dtheta = -sum_i dD_i d(log sum_j exp s_ij)/dtheta,
// which is computed here and allowed.
void expect_attention(const AttentionCase& z, const AttentionInputs& given, const Tensors& rounded = {},
                      const std::vector<ProductGradient>& products = {}) {
  const Make make = [&](const Tensors& x) { return with_leaves(given, x); };
  const Tensors inputs = leaves_of(given);
  const double single = z.precisions()[0].bound;
  const std::string what = z.name();
  const Result got = run_fused(
      "attention", [&](const Tensors& x) { return attention(make(x)); }, inputs);
  const Tensors leaves = with_gradients(testing::in_double(inputs));
  Stages stages;
  const AttentionInputs in = make(leaves);
  const at::Tensor o = attention_with(stages, in), weight = arriving(o);
  const Tensors exact = torch::autograd::grad({o}, leaves, {weight}, /*retain_graph=*/true);
  const at::Tensor shift = (weight * (got.value.to(at::kDouble) - o.detach())).sum(-1);
  const at::Tensor d_scores = torch::autograd::grad({o}, {stages.scores}, {weight}, /*retain_graph=*/true)[0];
  const Roundings way = attention_roundings(z, make, leaves, stages, d_scores, products);
  const bool composed = in.pre || in.post;  // then D_i is computed as a sum over the keys
  at::Tensor sums = log_sums(visible(z, in.mask), stages.scores, in.mixture ? in.mixture->epsilon : 0.0);
  if (in.sink) {
    sums = at::logaddexp(sums, in.sink->view({1, z.h, 1}));
  }
  const Tensors moved = composed ? Tensors(leaves.size())
                                 : torch::autograd::grad({sums}, leaves, {shift}, false, false, /*allow_unused=*/true);
  expect_within(got.value, o.detach(),
                {.rounded = o.detach().abs() + way.value, .moved = {}, .single = single * largest(o)},
                what + ": value");
  for (std::size_t i = 0; i < exact.size(); ++i) {
    // Some gradients vanish by cancellation: float32's error is relative to all of them.
    const double size = std::max(largest(exact[i]), 0.1 * largest(exact));
    at::Tensor own = i < rounded.size() ? rounded[i] : itself(exact[i], inputs[i]);
    if (way.gradients[i].defined()) {
      own = own + way.gradients[i];
    }
    expect_within(got.gradients[i], exact[i], {.rounded = own, .moved = moved[i], .single = single * size},
                  what + fmt::format(": gradient {}", i));
  }
}

TEST(Bfloat16, Attention) {
  for (const AttentionCase& z : attention_cases(Role::bfloat16)) {
    if (!z.mixture) {
      at::manual_seed(1);
      expect_attention(z, z.inputs({at::kBFloat16}));
    }
  }
}

// |q - k_r|^2 = |q|^2 - 2 q.k_r + |k_r|^2: the query-key dot products and the terms of query or key alone (lengths, dot
// products with shifts) are computed separately, and each has gradients of queries and keys, which are rounded before
// they are added. This computes the same with separate input tensors: `one` for the dot products, `other` for the
// terms.
struct InTwoParts {
  at::Tensor o;
  Tensors products;
  std::vector<std::size_t> keys;  // index of each product's keys among the inputs
};

InTwoParts in_two_parts(const AttentionCase& z, const AttentionInputs& in, const Tensors& one, const Tensors& other) {
  const bool shifted = z.mixture->keys == MixtureCase::shifted;
  const auto every = [&](const at::Tensor& t) { return for_heads(t, z); };
  InTwoParts result;
  const at::Tensor prior = other.back();
  Tensors terms;
  for (std::int64_t r = 0; r < z.mixture->n; ++r) {
    const std::size_t key = r == 0 || shifted ? 1 : 2 + static_cast<std::size_t>(r);
    at::Tensor product = one[0].matmul(every(one[key]).transpose(2, 3)), whole = every(other[key]);
    result.products.push_back(product);
    result.keys.push_back(key);
    if (shifted) {
      const at::Tensor shift = every(other[3].select(0, r).unsqueeze(0));  // [1, H, 1, e]
      product = product - (other[0] * shift).sum(-1, true);
      whole = whole - shift;
    }
    at::Tensor score = product * in.scale;
    if (in.mixture->coefficient) {
      score = (product * 2.0 - other[0].square().sum(-1, true) - whole.square().sum(-1).unsqueeze(2)) *
              (*in.mixture->coefficient)[r];
    }
    terms.push_back(score + every(prior.select(0, r).view({1, z.g, 1, 1})).log());
  }
  const at::Tensor scores = at::stack(terms).logsumexp(at::IntArrayRef{0});
  const at::Tensor seen = visible(z, in.mask);
  const at::Tensor p = (scores - log_sums(seen, scores, z.mixture->epsilon).unsqueeze(3)).exp();
  result.o = (p * seen.to(at::kDouble)).matmul(every(other[2]));
  return result;
}

TEST(Bfloat16, Mixtures) {
  for (const AttentionCase& z : attention_cases(Role::bfloat16)) {
    if (!z.mixture) {
      continue;
    }
    at::manual_seed(4);
    const AttentionInputs in = z.inputs({at::kBFloat16});
    const Tensors inputs = leaves_of(in), wide = testing::in_double(inputs);
    const Tensors one = with_gradients(wide), other = with_gradients(wide);
    const InTwoParts split = in_two_parts(z, in, one, other);
    const at::Tensor& o = split.o;
    ASSERT_LE(testing::relative_error(o, attention_reference(with_leaves(in, wide))), 1e-12);
    Tensors both = one;
    both.insert(both.end(), other.begin(), other.end());
    const Tensors d_products = torch::autograd::grad({o}, split.products, {arriving(o)}, /*retain_graph=*/true);
    std::vector<ProductGradient> products;
    for (std::size_t r = 0; r < d_products.size(); ++r) {
      products.push_back({d_products[r], split.keys[r]});
    }
    const Tensors parts = torch::autograd::grad({o}, both, {arriving(o)}, false, false, /*allow_unused=*/true);
    Tensors rounded;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const auto part = [&](std::size_t which) {
        return parts[which].defined() ? parts[which] : at::zeros_like(wide[i]);
      };
      const at::Tensor first = part(i), second = part(i + inputs.size());
      rounded.push_back(inputs[i].scalar_type() == at::kBFloat16 ? first.abs() + second.abs() + (first + second).abs()
                                                                 : at::zeros_like(wide[i]));
    }
    expect_attention(z, in, rounded, products);
  }
}

}  // namespace bfloat16_attention_test
}  // namespace headroom::ops
