// Compares multi-head latent attention with its equation. combinations_test.cc covers gradients, decoding, padding and
// combinations.
#include <ATen/record_function.h>

#include "headroom/config/attention_part.h"
#include "headroom/config/part_options.h"
#include "layer.h"
#include "one_thread.h"

namespace headroom::nn::latent_heads_test {

using testing::relative_error;

constexpr std::int64_t kWidth = 10, kHeads = 3, kHead = 7, kRotary = 4, kValue = 5, kRank = 6, kQueryRank = 8,
                       kMemory = 4, kTokens = 5;
constexpr double kBase = 100.0;

config::AttentionOptions options(std::int64_t q_rank, const std::string& more = "") {
  return attention_options(fmt::format(
      "projection=latent n_heads={} d_head={} kv_rank={} q_rank={} d_rotary={} d_value={} rope_base={:.1f} {}", kHeads,
      kHead, kRank, q_rank, kRotary, kValue, kBase, more));
}

Layer latent_layer(const config::AttentionOptions& o, std::int64_t d_model, at::ScalarType type) {
  return Layer(o, {.d_model = d_model, .context_length = kTokens, .memory_length = kMemory}, type,
               /*noise=*/0.3);
}

at::Tensor tokens(std::int64_t n, std::int64_t d_model, at::ScalarType type) {
  at::manual_seed(7);
  return at::randn({2, n, d_model}, at::kDouble).to(type);
}

at::Tensor rms(const at::Tensor& x, const at::Tensor& gain) {
  return x / (x.square().mean(-1, true) + 1e-6).sqrt() * gain;
}

at::Tensor written_out(const Layer& layer, const at::Tensor& all, bool compressed) {
  const auto w = [&](const char* name) { return layer.at(name); };
  const at::Tensor latent = rms(all.matmul(w("w_kv_down")), w("kv_norm")), shared = all.matmul(w("w_k_rotary"));
  const at::Tensor from = compressed ? rms(all.matmul(w("w_q_down")), w("q_down_norm")) : all;
  const at::Tensor q = at::einsum("bsd,dhe->bhse", {from, w("w_q")});
  const at::Tensor k = at::einsum("bsr,rhn->bhsn", {latent, w("w_k")});
  const at::Tensor v = at::einsum("bsr,rhw->bhsw", {latent, w("w_v")});
  const at::Tensor o = at::zeros({2, kHeads, kTokens, kValue}, at::kDouble);
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t h = 0; h < kHeads; ++h) {
      for (std::int64_t i = 0; i < kTokens; ++i) {
        const std::int64_t at = kMemory + i;
        const at::Tensor score = at::empty({at + 1}, at::kDouble),
                         plain = q[b][h][at].narrow(0, kRotary, kHead - kRotary);
        const at::Tensor query = at::cat({rotated(q[b][h][at].narrow(0, 0, kRotary), at, kBase), plain});
        for (std::int64_t j = 0; j <= at; ++j) {
          score[j] = query.dot(at::cat({rotated(shared[b][j], j, kBase), k[b][h][j]}));
        }
        o[b][h][i] = (score / std::sqrt(static_cast<double>(kHead))).softmax(0).matmul(v[b][h].narrow(0, 0, at + 1));
      }
    }
  }
  return at::einsum("bhtw,hwd->btd", {o, w("w_o")});
}

TEST(LatentHeads, MatchTheirEquation) {
  const at::NoGradGuard no_grad;
  for (const std::int64_t q_rank : {std::int64_t{0}, kQueryRank}) {
    const Layer layer = latent_layer(options(q_rank), kWidth, at::kDouble);
    const at::Tensor all = tokens(kMemory + kTokens, kWidth, at::kDouble);
    EXPECT_LE(relative_error(layer.last(all, kTokens), written_out(layer, all, q_rank > 0)), 1e-13) << q_rank;
  }
}

std::int64_t counted = 0;

std::unique_ptr<at::ObserverContext> count_product(const at::RecordFunction& call) {
  const std::string name = call.name();
  if (name == "aten::mm" || name == "aten::bmm") {
    counted += call.inputs()[0].toTensor().numel() * call.inputs()[1].toTensor().size(-1);
  }
  return nullptr;
}

// A step costs d r_q + r_q H e + d (r + p) + H r (n + w) + S H (2 r + p) + H w d multiply-accumulates.
TEST(LatentHeads, AStepDoesNotExpandTheKeys) {
  const at::NoGradGuard no_grad;
  const Layer layer = latent_layer(options(kQueryRank), kWidth, at::kDouble);
  const at::Tensor all = tokens(kMemory + kTokens, kWidth, at::kDouble);
  RowCaches cache(layer.attention, all.size(0));
  cache.read_all(layer.attention, all.narrow(1, 0, 8), {7});
  counted = 0;
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(count_product).needsInputs(true));
  cache.read(layer.attention, all.narrow(1, 8, 1));
  at::removeCallback(handle);
  const std::int64_t rest = kHead - kRotary, keys = 9;
  const std::int64_t expected = kWidth * kQueryRank + kQueryRank * kHeads * kHead + kWidth * (kRank + kRotary) +
                                kHeads * kRank * (rest + kValue) + keys * kHeads * (2 * kRank + kRotary) +
                                kHeads * kValue * kWidth;
  EXPECT_EQ(counted, 2 * expected);  // for two sequences
}

// The layer has DeepSeek-V3's sizes and must cache 576 elements per token.
TEST(LatentHeads, OfDeepSeekV3) {
  // DeepSeek-V3 has 128 heads, which does not change the cache.
  const config::AttentionOptions o =
      attention_options("projection=latent n_heads=2 d_head=192 kv_rank=512 q_rank=1536 d_rotary=64 d_value=128");
  const at::NoGradGuard no_grad;
  const Layer layer = latent_layer(o, 32, at::kFloat);
  const at::Tensor all = tokens(kMemory + kTokens, 32, at::kFloat);
  RowCaches cache(layer.attention, all.size(0));
  // Scores are sums of 576 products, which sets the tolerance.
  EXPECT_LE(
      relative_error(cache.read_all(layer.attention, all, {3}).narrow(1, kMemory, kTokens), layer.last(all, kTokens)),
      1e-4);
  EXPECT_EQ(cache.elements(), (kMemory + kTokens) * 576);
}

// Two groups must equal two layers that share the rotated key, each with half of the latent and half of the heads.
TEST(LatentHeads, GroupsEqualSeparateLayers) {
  const at::NoGradGuard no_grad;
  config::AttentionOptions grouped = options(kQueryRank), own = options(kQueryRank);
  grouped.n_heads = 2 * kHeads;
  grouped.of<config::LatentOptions>().latent_groups = 2;
  own.of<config::LatentOptions>().kv_rank = kRank / 2;
  const Layer layer = latent_layer(grouped, kWidth, at::kDouble);
  const at::Tensor all = tokens(kMemory + kTokens, kWidth, at::kDouble);
  at::Tensor sum;
  for (std::int64_t group = 0; group < 2; ++group) {
    const Layer half = latent_layer(own, kWidth, at::kDouble);
    for (const Parameter& p : half.parameters.all()) {
      const at::Tensor from = layer.at(p.name);
      std::int64_t axis = 0;  // index of the split axis
      while (axis < from.dim() && from.size(axis) == p.tensor.size(axis)) {
        ++axis;
      }
      p.tensor.copy_(axis == from.dim() ? from : from.chunk(2, axis)[static_cast<std::size_t>(group)]);
    }
    const at::Tensor y = half.last(all, kTokens);
    sum = sum.defined() ? sum + y : y;
  }
  EXPECT_LE(relative_error(layer.last(all, kTokens), sum), 1e-13);
  for (const std::int64_t first : {1, 5}) {
    RowCaches cache(layer.attention, all.size(0));
    const at::Tensor rows = cache.read_all(layer.attention, all, {first}).narrow(1, kMemory, kTokens);
    EXPECT_LE(relative_error(rows, sum), 1e-13) << first;
    EXPECT_EQ(cache.elements(), (kMemory + kTokens) * (kRank + kRotary)) << "as many as with one group";
  }
}

TEST(LatentHeads, OtherValuesThanKeysAreRefused) {
  const Layer layer(options(0, "position=none"), {.d_model = kWidth, .causal = false, .cross = true}, at::kFloat);
  const at::Tensor x = at::randn({1, 3, kWidth});
  EXPECT_EQ(layer.attention({.x = x, .source = x}, {}).sizes(), x.sizes());
  EXPECT_THROW(layer.attention({.x = x, .source = x, .source_value = x + 1.0}, {}), Error);
}

}  // namespace headroom::nn::latent_heads_test
