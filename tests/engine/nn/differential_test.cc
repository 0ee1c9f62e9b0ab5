// Compares both versions of differential attention with their equations. combinations_test.cc covers decoding, padding
// and combinations.

#include "headroom/config/attention_part.h"
#include "headroom/config/part_options.h"
#include "layer.h"
#include "one_thread.h"

namespace headroom::nn::differential_test {

using testing::relative_error;

constexpr std::int64_t kWidth = 10, kHeads = 6, kTokens = 7;

config::AttentionOptions options(std::int64_t version, std::int64_t kv_heads, const std::string& position = "none") {
  return attention_options(
      fmt::format("composition=differential differential_version={} n_heads={} n_kv_heads={} d_head=4 position={}",
                  version, kHeads, kv_heads, position));
}

Layer layer_of(const config::AttentionOptions& o, std::int64_t index = 0, at::ScalarType type = at::kDouble) {
  return Layer(o, {.d_model = kWidth, .layer = index, .context_length = kTokens}, type, /*noise=*/0.5);
}

// Returns the bias [B, T, T] on the scores of head h, which both attention matrices of the head share.
at::Tensor bias_of(const Layer& layer, const config::AttentionOptions& o, std::int64_t h, const at::Tensor& x) {
  at::Tensor log_forget = at::zeros({x.size(0), kTokens}, x.options());  // per token
  if (o.position == "alibi") {
    const double exponents[kHeads] = {2, 4, 6, 8, 1, 3};  // four heads, then every second of eight
    log_forget = log_forget - std::exp2(-exponents[h]);
  } else if (o.position == "forgetting") {
    log_forget = at::log_sigmoid(x.matmul(layer.at("w_forget").select(1, h)) + layer.at("b_forget")[h]);
  }
  std::vector<at::Tensor> pairs;
  for (std::int64_t i = 0; i < kTokens; ++i) {
    for (std::int64_t j = 0; j < kTokens; ++j) {
      pairs.push_back(j < i ? log_forget.narrow(1, j + 1, i - j).sum(1) : at::zeros({x.size(0)}, x.options()));
    }
  }
  return at::stack(pairs, 1).view({-1, kTokens, kTokens});
}

// Computes each head separately: two softmaxes, their difference, the norm.
at::Tensor written_out(const Layer& layer, const config::AttentionOptions& o, std::int64_t index, const at::Tensor& x) {
  const bool first = o.of<config::DifferentialOptions>().differential_version == 1;
  const double lambda_0 = 0.8 - 0.6 * std::exp(-0.3 * static_cast<double>(index));
  const std::int64_t group = kHeads / o.kv_heads();
  at::Tensor y = at::zeros_like(x);
  for (std::int64_t h = 0; h < kHeads; ++h) {
    const std::int64_t g = h / group;
    at::Tensor sums[2];
    for (const std::int64_t m : {0, 1}) {
      const at::Tensor q = x.matmul(layer.at("w_q").select(1, h).select(1, m));
      const at::Tensor w_k = layer.at("w_k").select(1, g), k = x.matmul(first ? w_k.select(1, m) : w_k);
      const at::Tensor hidden = at::ones({x.size(1), x.size(1)}, at::kBool).triu(1);
      const at::Tensor scores =
          q.matmul(k.transpose(1, 2)) / std::sqrt(static_cast<double>(o.d_head)) + bias_of(layer, o, h, x);
      const at::Tensor weights = scores.masked_fill(hidden, -INFINITY);
      sums[m] = weights.softmax(-1).matmul(x.matmul(layer.at("w_v").select(1, g)));
    }
    at::Tensor u;
    if (first) {
      const at::Tensor dots = (layer.at("lambda_q") * layer.at("lambda_k")).sum(1);
      u = sums[0] - (dots[0].exp() - dots[1].exp() + lambda_0) * sums[1];
      u = u / (u.square().mean(-1, true) + 1e-5).sqrt() * layer.at("head_norm") * (1.0 - lambda_0);
    } else {
      u = sums[0] - x.matmul(layer.at("w_lambda").select(1, h)).sigmoid().unsqueeze(2) * sums[1];
    }
    y = y + u.matmul(layer.at("w_o")[h]);
  }
  return y;
}

std::vector<at::Tensor> with_gradients(const Layer& layer, const at::Tensor& x, const at::Tensor& y) {
  std::vector<at::Tensor> leaves = {x};
  for (const Parameter& p : layer.parameters.all()) {
    leaves.push_back(p.tensor);
  }
  const at::Tensor objective = (y * at::arange(y.numel(), y.options()).sin().view(y.sizes())).sum();
  std::vector<at::Tensor> all = torch::autograd::grad({objective}, leaves);
  all.push_back(y.detach());
  return all;
}

TEST(Differential, MatchesTheEquationWithAllGradients) {
  for (const std::int64_t version : {1, 2}) {
    for (const std::int64_t kv_heads : {1, 2, 3, 6}) {
      for (const auto& [index, position] : {std::pair(0, "none"), {5, "none"}, {0, "alibi"}, {0, "forgetting"}}) {
        const config::AttentionOptions o = options(version, kv_heads, position);
        const Layer layer = layer_of(o, index);
        at::manual_seed(2);
        const at::Tensor x = at::randn({2, kTokens, kWidth}, at::kDouble).requires_grad_(true);
        const auto expected = with_gradients(layer, x, written_out(layer, o, index, x));
        for (const Implementation implementation : {Implementation::automatic, Implementation::reference}) {
          const Context context{.implementation = implementation};
          const auto got = with_gradients(layer, x, layer.attention({.x = x}, context));
          for (std::size_t i = 0; i < got.size(); ++i) {
            EXPECT_LE(relative_error(got[i], expected[i]), 1e-12)
                << "version " << version << ", " << kv_heads << " kv heads, layer " << index << ", position "
                << position << ", value " << i;
          }
        }
      }
    }
  }
}

// The observed weights must be the weights that multiply the values: H differences of the 2 H matrices.
TEST(Differential, ShowsTheDifferenceOfItsMatrices) {
  const at::NoGradGuard no_grad;
  for (const std::int64_t version : {1, 2}) {
    const config::AttentionOptions o = options(version, 2);
    const Layer layer = layer_of(o, 2);
    at::manual_seed(2);
    const at::Tensor x = at::randn({2, kTokens, kWidth}, at::kDouble);
    Recorder recorder({"*"});
    const Context context{.observer = &recorder};
    const at::Tensor y = layer.attention({.x = x}, context);
    EXPECT_LE(relative_error(y, layer.attention({.x = x}, {})), 1e-12);
    const at::Tensor p = recorder.at("probs").unflatten(1, {kHeads, 2}), lambda = recorder.at("lambda");
    EXPECT_LE(relative_error(recorder.at("probs_composed"), p.select(2, 0) - lambda * p.select(2, 1)), 1e-14);
    const at::Tensor values = recorder.at("v").repeat_interleave(kHeads / 2, 1);
    at::Tensor o_by_head = recorder.at("probs_composed").matmul(values);
    EXPECT_LE(relative_error(recorder.at("difference"), o_by_head), 1e-13);
    if (version == 1) {
      o_by_head = o_by_head * recorder.at("head_norm");
    }
    EXPECT_LE(relative_error(recorder.at("o"), o_by_head), 1e-12);
  }
}

// Both matrices of a head must have the head's bias and sink.
TEST(Differential, SharesBiasAndSinkOfAHead) {
  at::manual_seed(2);
  ops::AttentionInputs in{.q = at::randn({2, 8, 5, 4}), .k = at::randn({2, 2, 5, 4}), .v = at::randn({2, 2, 5, 4})};
  in.difference = at::rand({2, 4, 5, 1});
  in.bias = at::randn({1, 4, 5, 5});
  in.sink = at::randn({4});
  ops::AttentionInputs each = in;
  each.bias = in.bias->repeat_interleave(2, 1);
  each.sink = in.sink->repeat_interleave(2);
  for (const Implementation implementation : {Implementation::automatic, Implementation::reference}) {
    EXPECT_TRUE(at::equal(ops::attention(in, implementation), ops::attention(each, implementation)));
  }
  in.difference = at::rand({2, 3, 5, 1});
  EXPECT_THROW(ops::attention(in), Error);
}

}  // namespace headroom::nn::differential_test
