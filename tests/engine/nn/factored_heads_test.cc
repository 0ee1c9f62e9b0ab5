// Compares tensor product attention with its equation. combinations_test.cc covers gradients, decoding, padding and
// combinations.

#include "headroom/config/attention_part.h"
#include "layer.h"
#include "one_thread.h"

namespace headroom::nn::factored_heads_test {

using testing::relative_error;

constexpr std::int64_t kWidth = 10, kHeads = 3, kHead = 6, kRank = 2, kQueryRank = 4, kMemory = 4, kTokens = 5,
                       kAll = kMemory + kTokens;
constexpr double kBase = 100.0;

config::AttentionOptions options(std::int64_t q_rank) {
  return attention_options(fmt::format("projection=factored n_heads={} d_head={} kv_rank={} q_rank={} rope_base={:.1f}",
                                       kHeads, kHead, kRank, q_rank, kBase));
}

Layer factored_layer(const config::AttentionOptions& o) {
  return Layer(o, {.d_model = kWidth, .context_length = kTokens, .memory_length = kMemory}, at::kDouble,
               /*noise=*/0.3);
}

at::Tensor tokens(at::ScalarType type) {
  at::manual_seed(7);
  return at::randn({2, kAll, kWidth}, at::kDouble).to(type);
}

// Rotates x [B, S, R or H, e] by the tokens' positions.
at::Tensor turned(const at::Tensor& x) {
  std::vector<at::Tensor> rows;
  for (std::int64_t position = 0; position < x.size(1); ++position) {
    rows.push_back(rotated(x.select(1, position), position, kBase));
  }
  return at::stack(rows, 1);
}

// Returns the heads [B, S, H, e] of factors "<name>.a" and "<name>.b".
at::Tensor heads_of(const Layer& layer, const at::Tensor& x, const std::string& name, bool rotates) {
  const at::Tensor a = at::einsum("bsd,dhr->bshr", {x, layer.at(name + ".a")});
  const at::Tensor b = at::einsum("bsd,dre->bsre", {x, layer.at(name + ".b")});
  return at::einsum("bshr,bsre->bshe", {a, rotates ? turned(b) : b}) / static_cast<double>(a.size(3));
}

at::Tensor written_out(const Layer& layer, const at::Tensor& all, bool factored) {
  const at::Tensor q =
      factored ? heads_of(layer, all, "q", true) : turned(at::einsum("bsd,dhe->bshe", {all, layer.at("w_q")}));
  const at::Tensor k = heads_of(layer, all, "k", true), v = heads_of(layer, all, "v", false);
  std::vector<at::Tensor> rows;
  for (std::int64_t at = kMemory; at < kAll; ++at) {
    const at::Tensor seen = k.narrow(1, 0, at + 1);
    const at::Tensor p = (at::einsum("bhe,bshe->bhs", {q.select(1, at), seen}) / std::sqrt(kHead)).softmax(-1);
    rows.push_back(at::einsum("bhs,bshe,hed->bd", {p, v.narrow(1, 0, at + 1), layer.at("w_o")}));
  }
  return at::stack(rows, 1);
}

TEST(FactoredHeads, MatchTheirEquation) {
  const at::NoGradGuard no_grad;
  for (const std::int64_t q_rank : {std::int64_t{0}, kQueryRank}) {
    const Layer layer = factored_layer(options(q_rank));
    const at::Tensor all = tokens(at::kDouble);
    EXPECT_LE(relative_error(layer.last(all, kTokens), written_out(layer, all, q_rank > 0)), 1e-13) << q_rank;
  }
}

TEST(FactoredHeads, ValuesMayComeFromOtherTokens) {
  config::AttentionOptions o = options(0);
  o.position = "none";
  const Layer layer(o, {.d_model = kWidth, .causal = false, .cross = true}, at::kDouble, /*noise=*/0.3);
  const at::Tensor x = tokens(at::kDouble), source = x.flip(1);
  const at::Tensor plain = layer.attention({.x = x, .source = source}, {});
  const at::Tensor twice = layer.attention({.x = x, .source = source, .source_value = source * 2.0}, {});
  EXPECT_LE(relative_error(twice, plain * 4.0), 1e-13);  // both factors of the values double
}

}  // namespace headroom::nn::factored_heads_test
