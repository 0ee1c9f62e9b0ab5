// Compares grouped-tied attention with its equation. combinations_test.cc covers gradients, decoding, padding and
// combinations.

#include "headroom/config/attention_part.h"
#include "layer.h"
#include "one_thread.h"

namespace headroom::nn::tied_heads_test {

using testing::relative_error;

constexpr std::int64_t kWidth = 10, kHeads = 4, kGroups = 2, kHead = 8, kHalf = kHead / 2, kMemory = 4, kTokens = 5,
                       kAll = kMemory + kTokens;
constexpr double kBase = 100.0;

config::AttentionOptions options(const std::string& more = "") {
  return attention_options(
      fmt::format("projection=tied n_heads={} n_kv_heads={} d_head={} bias=true rope_base={:.1f} {}", kHeads, kGroups,
                  kHead, kBase, more));
}

Layer tied_layer() {
  return Layer(options(), {.d_model = kWidth, .context_length = kTokens, .memory_length = kMemory}, at::kDouble,
               /*noise=*/0.3);
}

at::Tensor tokens(at::ScalarType type) {
  at::manual_seed(7);
  return at::randn({2, kAll, kWidth}, at::kDouble).to(type);
}

at::Tensor written_out(const Layer& layer, const at::Tensor& all) {
  const at::Tensor q = at::einsum("bsd,dhe->bshe", {all, layer.at("w_q")}) + layer.at("b_q");
  const at::Tensor state = at::einsum("bsd,dge->bsge", {all, layer.at("w_v")}) + layer.at("b_v");
  const at::Tensor shared = all.matmul(layer.at("w_k_rotary")) + layer.at("b_k_rotary");
  at::Tensor o = at::zeros({2, kTokens, kHeads, kHead}, at::kDouble);
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t h = 0; h < kHeads; ++h) {
      const at::Tensor values = state[b].select(1, h / (kHeads / kGroups));  // [S, e]
      for (std::int64_t i = 0; i < kTokens; ++i) {
        const std::int64_t at = kMemory + i;
        const at::Tensor query = q[b][at][h], turned = rotated(query.narrow(0, 0, kHalf), at, kBase);
        const at::Tensor score = at::empty({at + 1}, at::kDouble);
        for (std::int64_t j = 0; j <= at; ++j) {
          score[j] = turned.dot(rotated(shared[b][j], j, kBase)) +
                     query.narrow(0, kHalf, kHalf).dot(values[j].narrow(0, 0, kHalf));
        }
        o[b][i][h] = (score / std::sqrt(static_cast<double>(kHead))).softmax(0).matmul(values.narrow(0, 0, at + 1));
      }
    }
  }
  return at::einsum("bthe,hed->btd", {o, layer.at("w_o")}) + layer.at("b_o");
}

TEST(TiedHeads, MatchTheirEquation) {
  const at::NoGradGuard no_grad;
  const Layer layer = tied_layer();
  const at::Tensor all = tokens(at::kDouble);
  EXPECT_LE(relative_error(layer.last(all, kTokens), written_out(layer, all)), 1e-13);
}

TEST(TiedHeads, OtherValuesThanKeysAreRefused) {
  const Layer layer(options("position=none"), {.d_model = kWidth, .causal = false, .cross = true}, at::kFloat);
  const at::Tensor x = at::randn({1, 3, kWidth});
  EXPECT_EQ(layer.attention({.x = x, .source = x}, {}).sizes(), x.sizes());
  EXPECT_THROW(layer.attention({.x = x, .source = x, .source_value = x + 1.0}, {}), Error);
}

}  // namespace headroom::nn::tied_heads_test
