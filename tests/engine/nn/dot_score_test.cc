// A learned sink in a layer against its equation. combinations_test.cc covers gradients, decoding, padding and
// combinations; sink_test.cc in ops covers the fused kernels.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/ops/gradients.h"
#include "headroom/config/attention/score_options.h"
#include "layer.h"
#include "one_thread.h"

namespace headroom::nn {
namespace dot_score_test {

using testing::relative_error;

constexpr std::int64_t kWidth = 6, kHeads = 4, kGroups = 2, kHead = 4, kMemory = 3, kTokens = 5, kWindow = 4;

Layer layer_with_sink(const std::string& position, at::ScalarType type) {
  config::AttentionOptions o;
  o.of<config::DotOptions>().sink = true;
  o.n_heads = kHeads;
  o.n_kv_heads = kGroups;
  o.d_head = kHead;
  o.position = position;
  Layer layer(o, {.d_model = kWidth, .window = kWindow, .context_length = kTokens, .memory_length = kMemory}, type);
  const at::NoGradGuard no_grad;
  layer.at("sink").copy_(at::arange(kHeads) - 1.5);
  return layer;
}

at::Tensor tokens(at::ScalarType type) {
  at::manual_seed(7);
  return at::randn({2, kMemory + kTokens, kWidth}, at::kDouble).to(type);
}

TEST(DotScore, ASinkTakesAShareOfEachSoftmax) {
  const at::NoGradGuard no_grad;
  const Layer layer = layer_with_sink("none", at::kDouble);
  const at::Tensor all = tokens(at::kDouble), sink = layer.at("sink");
  const at::Tensor q = at::einsum("bsd,dhe->bhse", {all, layer.at("w_q")});
  const at::Tensor k = at::einsum("bsd,dge->bgse", {all, layer.at("w_k")});
  const at::Tensor v = at::einsum("bsd,dge->bgse", {all, layer.at("w_v")});
  const at::Tensor o = at::zeros({2, kHeads, kTokens, kHead}, at::kDouble);
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t h = 0; h < kHeads; ++h) {
      for (std::int64_t i = 0; i < kTokens; ++i) {
        const std::int64_t at = kMemory + i, first = std::max<std::int64_t>(0, at - kWindow + 1), n = at - first + 1;
        const at::Tensor weight = (k[b][h / 2].narrow(0, first, n).matmul(q[b][h][at]) / std::sqrt(4.0)).exp();
        o[b][h][i] = weight.matmul(v[b][h / 2].narrow(0, first, n)) / (weight.sum() + sink[h].exp());
      }
    }
  }
  EXPECT_LE(relative_error(layer.last(all, kTokens), at::einsum("bhte,hed->btd", {o, layer.at("w_o")})), 1e-13);
}

TEST(DotScore, TheScaleMayBeThatOfAnotherWidth) {
  const at::NoGradGuard no_grad;
  config::AttentionOptions o;
  o.n_heads = kHeads;
  o.d_head = kHead;
  const AttentionPlace place{.d_model = kWidth, .context_length = kTokens};
  const Layer plain(o, place, at::kDouble);
  o.of<config::DotOptions>().scale_width = 16.0;  // scores are halved
  const Layer other(o, place, at::kDouble);
  const at::Tensor x = tokens(at::kDouble).narrow(1, 0, kTokens), y = other.last(x, kTokens);
  EXPECT_FALSE(plain.last(x, kTokens).allclose(y));
  plain.at("w_q").mul_(0.5);
  EXPECT_LE(relative_error(plain.last(x, kTokens), y), 1e-14);
}

}  // namespace dot_score_test
}  // namespace headroom::nn
