// Fused attention in bfloat16 (bfloat16.h): plain, with relative positions, with composed heads, with mixtures of keys.
#include <limits>

#include "bfloat16.h"
#include "headroom/ops/attention.h"
#include "ops/float_on_cpu.h"

namespace headroom::ops {
namespace bfloat16_attention_test {

using namespace testing::bfloat16;

// [T, S], the same for every sequence.
at::Tensor visible(const Sizes& z) {
  at::Tensor seen = at::ones({z.t, z.s}, at::kBool);
  seen = z.causal ? seen.tril(z.s - z.t) : seen;
  seen = z.window > 0 ? seen.triu(z.s - z.t - z.window + 1) : seen;
  return z.padded ? seen.logical_and(mask_of(z).valid_keys->select(0, 0)) : seen;
}

// log sum_j exp(score_ij) over what row i sees, with a mixture's epsilon among the terms.
at::Tensor log_sums(const Sizes& z, const at::Tensor& scores, double epsilon) {
  const at::Tensor sums = scores.masked_fill(visible(z).logical_not(), -std::numeric_limits<double>::infinity())
                              .logsumexp(at::IntArrayRef{3});
  return epsilon > 0.0 ? at::logaddexp(sums, at::full({}, std::log(epsilon), at::kDouble)) : sums;
}

// Which tensors a call's inputs are made of: read in the order in which they were made.
struct Reader {
  const Tensors& from;
  std::size_t next = 0;
  at::Tensor operator()() { return from[next++]; }
};

using Make = std::function<AttentionInputs(const Tensors&)>;

AttentionInputs heads(const Sizes& z, Reader& read) {
  AttentionInputs in;
  in.q = read();
  in.k = read();
  in.v = read();
  in.scale = 1.0 / std::sqrt(static_cast<double>(z.e));
  in.mask = mask_of(z);
  return in;
}

at::Tensor for_heads(const at::Tensor& t, const Sizes& z) {
  return t.repeat_interleave(z.h / z.g, 1);
}

// What is rounded on the way where products are those of bfloat16: probabilities before they meet values or dO, and
// gradients of scores before they meet queries, keys and offsets.
struct OnTheWay {
  at::Tensor value;
  Tensors gradients;  // undefined: nothing
};

// `product_gradients`: those of the products of queries and keys, with the keys of each, in mixtures.
struct ProductGradient {
  at::Tensor d;     // [B, H, T, S]
  std::size_t key;  // which input its keys are
};

void add(at::Tensor& to, const at::Tensor& more) {
  to = to.defined() ? to + more : more;
}

// The stages that the bounds are made of.
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

OnTheWay on_the_way(const Sizes& z, const Make& make, const Tensors& exact, const Stages& stages,
                    const at::Tensor& d_scores, const std::vector<ProductGradient>& products) {
  OnTheWay sums{.value = at::zeros_like(exact[0]), .gradients = Tensors(exact.size())};
  if (!multiplies_bfloat16()) {
    return sums;
  }
  Tensors sizes;
  for (const at::Tensor& t : exact) {
    sizes.push_back(t.detach().abs());
  }
  const Tensors leaves = leaves_of(sizes);
  const at::Tensor value = stages.probs_composed.detach().abs().matmul(for_heads(leaves[2], z));
  sums.value = value.detach();
  sums.gradients[2] = torch::autograd::grad({value}, {leaves[2]}, {arriving(value).abs()})[0];
  if (products.empty()) {  // sums of products of positive numbers: their gradients are the sums that are asked for
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

// The result o is rounded once, and so is each gradient, with more in `rounded` where a gradient is put together from
// several, and with what on_the_way() adds. The backward pass of p = softmax(s) needs D_i = dO_i . o_i, which it may
// take from the o that was handed out: dS_ij = p_ij (dP_ij - D_i) then moves by -p_ij dD_i, dD_i = dO_i . (o_i as
// rounded - o_i), and the gradient of any theta by -sum_ij p_ij dD_i ds_ij/dtheta = -sum_i dD_i d(log sum_j exp
// s_ij)/dtheta: known here, and allowed.
void expect_attention(const Sizes& z, const Make& make, const Tensors& inputs, const Tensors& rounded, double single,
                      const std::string& what, const std::vector<ProductGradient>& products = {}) {
  const Result got = run_fused(
      "attention", [&](const Tensors& x) { return attention(make(x)); }, inputs);
  const Tensors leaves = leaves_of(testing::in_double(inputs));
  Stages stages;
  const AttentionInputs in = make(leaves);
  const at::Tensor o = attention_with(stages, in), weight = arriving(o);
  const Tensors exact = torch::autograd::grad({o}, leaves, {weight}, /*retain_graph=*/true);
  const at::Tensor shift = (weight * (got.value.to(at::kDouble) - o.detach())).sum(-1);
  const at::Tensor d_scores = torch::autograd::grad({o}, {stages.scores}, {weight}, /*retain_graph=*/true)[0];
  const OnTheWay way = on_the_way(z, make, leaves, stages, d_scores, products);
  const bool composed = in.pre || in.post;  // there D_i is a sum over the keys
  const Tensors moved =
      composed ? Tensors(leaves.size())
               : torch::autograd::grad({log_sums(z, stages.scores, in.mixture ? in.mixture->epsilon : 0.0)}, leaves,
                                       {shift}, false, false, /*allow_unused=*/true);
  expect_within(got.value, o.detach(),
                {.rounded = o.detach().abs() + way.value, .moved = {}, .single = single * largest(o)},
                what + ": value");
  for (std::size_t i = 0; i < exact.size(); ++i) {
    // Some gradients vanish by cancellation: float32's share is measured against all of them.
    const double size = std::max(largest(exact[i]), 0.1 * largest(exact));
    at::Tensor own = i < rounded.size() ? rounded[i] : itself(exact[i], inputs[i]);
    if (way.gradients[i].defined()) {
      own = own + way.gradients[i];
    }
    expect_within(got.gradients[i], exact[i], {.rounded = own, .moved = moved[i], .single = single * size},
                  what + fmt::format(": gradient {}", i));
  }
}

TEST(Bfloat16, PlainAttention) {
  for (const Sizes& z : kSizes) {
    at::manual_seed(1);
    expect_attention(
        z,
        [&](const Tensors& x) {
          Reader read{x};
          return heads(z, read);
        },
        heads_of(z), {}, 1e-5, z.name());
  }
}

TEST(Bfloat16, RelativeAttention) {
  for (const Sizes& z : kSizes) {
    at::manual_seed(2);
    Tensors inputs = heads_of(z);
    inputs.push_back(bfloat({z.b, z.h, z.t, z.e}));
    inputs.push_back(bfloat({z.h, z.causal ? z.s : z.s + z.t - 1, z.e}));
    expect_attention(
        z,
        [&](const Tensors& x) {
          Reader read{x};
          AttentionInputs in = heads(z, read);
          in.q_position = read();
          in.r = read();
          return in;
        },
        inputs, {}, 1e-5, z.name());
  }
}

TEST(Bfloat16, ComposedAttention) {
  constexpr std::int64_t kRank = 2;
  for (const Sizes& z : kSizes) {
    for (const auto& [pre, post] : {std::pair{true, true}, {true, false}, {false, true}}) {
      at::manual_seed(3);
      Tensors inputs = heads_of(z);
      const std::int64_t width = (2 * kRank + 1) * z.h;
      for (const bool present : {pre, post}) {
        if (present) {
          inputs.push_back(bfloat({1, z.h, z.h}, 0.3));
          inputs.push_back(bfloat({z.b, z.t, width}, 0.5));
          inputs.push_back(bfloat({z.b, z.s, width}, 0.5));
        }
      }
      const auto stage = [&](Reader& read) {
        HeadMap map{.n_groups = 1, .skip = true, .fixed = read(), .query = {}, .key = {}};
        map.query = {.factors = read(), .rank = kRank, .has_gate = true};
        map.key = {.factors = read(), .rank = kRank, .has_gate = true};
        return map;
      };
      expect_attention(
          z,
          [&](const Tensors& x) {
            Reader read{x};
            AttentionInputs in = heads(z, read);
            if (pre) {
              in.pre = stage(read);
            }
            if (post) {
              in.post = stage(read);
            }
            return in;
          },
          inputs, {}, 2e-5, z.name() + fmt::format(" pre {} post {}", pre, post));
    }
  }
}

struct Kind {
  std::int64_t n;
  bool gaussian, shifted;
  double epsilon;
};

// c_r of the Gaussians, exact in bfloat16; different for each, else the terms of the query alone would cancel.
at::Tensor coefficients(std::int64_t n, at::ScalarType type) {
  return (at::arange(1, n + 1).to(at::kDouble) / 16).to(type);
}

// q, k, v, then more keys or shifts, then priors. Priors and shifts are parameters, which stay in float32.
Tensors mixture_inputs(const Sizes& z, const Kind& kind) {
  Tensors inputs = heads_of(z);
  for (std::int64_t r = 1; !kind.shifted && r < kind.n; ++r) {
    inputs.push_back(bfloat({z.b, z.g, z.s, z.e}));
  }
  if (kind.shifted) {
    inputs.push_back(at::randn({kind.n, z.g, 1, z.e}));
  }
  inputs.push_back(at::rand({kind.n, z.g, 1}).add(0.2));
  return inputs;
}

AttentionInputs mixture(const Sizes& z, const Kind& kind, const Tensors& x) {
  Reader read{x};
  AttentionInputs in = heads(z, read);
  Mixture mixture;
  for (std::int64_t r = 1; !kind.shifted && r < kind.n; ++r) {
    mixture.more_keys.push_back(read());
  }
  if (kind.shifted) {
    mixture.shift = read();
  }
  mixture.prior = read();
  mixture.epsilon = kind.epsilon;
  if (kind.gaussian) {
    mixture.coefficient = coefficients(kind.n, in.q.scalar_type());
  }
  in.mixture = mixture;
  return in;
}

// |q - k_r|^2 = |q|^2 - 2 q.k_r + |k_r|^2: the product with the keys and what depends on query or key alone (lengths,
// and products with shifts) are computed apart, and each has gradients of its own for queries and keys, rounded before
// they are added. The same with tensors of their own for either part: `one` for products, `other` for the rest.
struct InTwoParts {
  at::Tensor o;
  Tensors products;
  std::vector<std::size_t> keys;  // which input the keys of each are
};

InTwoParts in_two_parts(const Sizes& z, const Kind& kind, const Tensors& one, const Tensors& other) {
  const auto every = [&](const at::Tensor& t) { return for_heads(t, z); };
  InTwoParts result;
  const at::Tensor c = coefficients(kind.n, at::kDouble), prior = other.back();
  const double scale = 1.0 / std::sqrt(static_cast<double>(z.e));
  Tensors terms;
  for (std::int64_t r = 0; r < kind.n; ++r) {
    const std::size_t key = r == 0 || kind.shifted ? 1 : 2 + static_cast<std::size_t>(r);
    at::Tensor product = one[0].matmul(every(one[key]).transpose(2, 3)), whole = every(other[key]);
    result.products.push_back(product);
    result.keys.push_back(key);
    if (kind.shifted) {
      const at::Tensor shift = every(other[3].select(0, r).unsqueeze(0));  // [1, H, 1, e]
      product = product - (other[0] * shift).sum(-1, true);
      whole = whole - shift;
    }
    at::Tensor score = product * scale;
    if (kind.gaussian) {
      score = (product * 2.0 - other[0].square().sum(-1, true) - whole.square().sum(-1).unsqueeze(2)) * c[r];
    }
    terms.push_back(score + every(prior.select(0, r).view({1, z.g, 1, 1})).log());
  }
  const at::Tensor scores = at::stack(terms).logsumexp(at::IntArrayRef{0});
  const at::Tensor p = (scores - log_sums(z, scores, kind.epsilon).unsqueeze(3)).exp();
  result.o = (p * visible(z).to(at::kDouble)).matmul(every(other[2]));
  return result;
}

TEST(Bfloat16, Mixtures) {
  for (const Sizes& z : kSizes) {
    for (const Kind& kind : {Kind{1, true, false, 0.0}, Kind{2, true, false, 0.0}, Kind{2, true, true, 0.5},
                             Kind{3, false, false, 0.5}, Kind{3, false, true, 0.0}}) {
      at::manual_seed(4);
      const Tensors inputs = mixture_inputs(z, kind), wide = testing::in_double(inputs);
      const Tensors one = leaves_of(wide), other = leaves_of(wide);
      const InTwoParts in_parts = in_two_parts(z, kind, one, other);
      const at::Tensor& o = in_parts.o;
      ASSERT_LE(testing::relative_error(o, attention_reference(mixture(z, kind, wide))), 1e-12);
      Tensors both = one;
      both.insert(both.end(), other.begin(), other.end());
      const Tensors d_products = torch::autograd::grad({o}, in_parts.products, {arriving(o)}, /*retain_graph=*/true);
      std::vector<ProductGradient> products;
      for (std::size_t r = 0; r < d_products.size(); ++r) {
        products.push_back({d_products[r], in_parts.keys[r]});
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
      expect_attention(
          z, [&](const Tensors& x) { return mixture(z, kind, x); }, inputs, rounded, 3e-5,
          z.name() + fmt::format(" R {} gaussian {} shifted {}", kind.n, kind.gaussian, kind.shifted), products);
    }
  }
}

}  // namespace bfloat16_attention_test
}  // namespace headroom::ops
