// Compares sparse heads (MoSA) with their equation, token by token. combinations_test.cc covers gradients, padding and
// combinations.

#include <numeric>

#include "headroom/config/attention_part.h"
#include "headroom/config/part_options.h"
#include "layer.h"
#include "one_thread.h"

namespace headroom::nn::sparse_heads_test {

using testing::relative_error;

constexpr std::int64_t kWidth = 6, kHeads = 3, kHead = 4, kTokens = 9;

config::AttentionOptions options_of(const config::SparseHeadOptions& own) {
  config::AttentionOptions o;
  o.projection = "sparse_heads";
  o.n_heads = kHeads;
  o.d_head = kHead;
  o.position = "none";
  o.of<config::SparseHeadOptions>() = own;
  return o;
}

Layer layer_of(const config::AttentionOptions& o, bool causal) {
  return Layer(o, {.d_model = kWidth, .causal = causal, .context_length = kTokens}, at::kDouble, /*noise=*/1.0);
}

// Returns the valid tokens that a head with these scores [T] selects.
std::vector<std::int64_t> chosen(const at::Tensor& score, const at::Tensor& valid,
                                 const config::SparseHeadOptions& own) {
  std::vector<std::int64_t> tokens(kTokens);
  std::iota(tokens.begin(), tokens.end(), std::int64_t{0});
  const auto rank = [&](std::int64_t i) {
    return !valid[i].item<bool>() ? -1e9 : own.include_first && i == 0 ? 1e9 : score[i].item<double>();
  };
  std::sort(tokens.begin(), tokens.end(), [&](auto i, auto j) { return rank(i) > rank(j); });
  tokens.resize(static_cast<std::size_t>(std::max<std::int64_t>(2, valid.sum().item<std::int64_t>() / own.sparsity)));
  std::erase_if(tokens, [&](std::int64_t i) { return !valid[i].item<bool>(); });
  return tokens;
}

struct Heads {
  at::Tensor w_q, w_k, w_v, w_o;
};

// Adds the output of one head over `tokens` to y [T, d].
void add_head(at::Tensor& y, const at::Tensor& x, const Heads& w, std::int64_t h, const at::Tensor& gate,
              const std::vector<std::int64_t>& tokens, bool causal) {
  const auto of = [&](const at::Tensor& m, std::int64_t i) { return x[i].matmul(m.select(1, h)); };
  for (const std::int64_t i : tokens) {
    at::Tensor sum = at::zeros({kHead}, at::kDouble), all = at::zeros({}, at::kDouble);
    for (const std::int64_t j : tokens) {
      if (!causal || j <= i) {
        const at::Tensor weight = (of(w.w_q, i).dot(of(w.w_k, j)) / std::sqrt(static_cast<double>(kHead))).exp();
        sum = sum + weight * of(w.w_v, j);
        all = all + weight;
      }
    }
    y[i] += gate[i] * (sum / all).matmul(w.w_o[h]);
  }
}

at::Tensor written_out(const Layer& layer, const config::SparseHeadOptions& own, const at::Tensor& x,
                       const at::Tensor& valid, bool causal) {
  const Heads heads{layer.at("w_q"), layer.at("w_k"), layer.at("w_v"), layer.at("w_o")};
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < kTokens; ++i) {
    if (valid[i].item<bool>()) {
      all.push_back(i);
    }
  }
  at::Tensor y = at::zeros_like(x);
  for (std::int64_t h = 0; h < kHeads; ++h) {
    const at::Tensor score = x.matmul(layer.at("select").select(1, h));
    add_head(y, x, heads, h, score.sigmoid(), chosen(score, valid, own), causal);
  }
  for (std::int64_t h = 0; h < own.dense_heads; ++h) {
    add_head(y, x, heads, kHeads + h, at::ones({kTokens}, at::kDouble), all, causal);
  }
  return y;
}

TEST(SparseHeads, MatchTheirEquation) {
  const at::NoGradGuard no_grad;
  const config::SparseHeadOptions settings[] = {
      {.sparsity = 3}, {.sparsity = 2, .include_first = true}, {.sparsity = 100, .dense_heads = 2}, {.sparsity = 1}};
  for (const config::SparseHeadOptions& own : settings) {
    for (const bool causal : {false, true}) {
      const Layer layer = layer_of(options_of(own), causal);
      at::manual_seed(3);
      const at::Tensor x = at::randn({1, kTokens, kWidth}, at::kDouble);
      at::Tensor valid = at::ones({1, kTokens}, at::kBool);
      for (const bool padded : {false, true}) {
        if (padded) {
          valid.slice(1, kTokens - 2).fill_(false);
        }
        const AttentionInput input{.x = x, .valid_keys = valid};
        const at::Tensor got = layer.attention(input, {})[0],
                         expected = written_out(layer, own, x[0], valid[0], causal);
        const std::int64_t n = padded ? kTokens - 2 : kTokens;
        EXPECT_LE(relative_error(got.narrow(0, 0, n), expected.narrow(0, 0, n)), 1e-12)
            << own.sparsity << (causal ? ", causal" : "") << (padded ? ", padded" : "");
      }
    }
  }
}

// Tokens that no head selects must have the output 0 in single precision, too.
TEST(SparseHeads, GiveZeroToTokensThatAreNotSelected) {
  const Layer layer(options_of({.sparsity = 100}), {.d_model = kWidth, .context_length = kTokens}, at::kFloat, 1.0);
  Recorder recorder({"chosen"});
  const Context context{.observer = &recorder};
  at::manual_seed(3);
  const at::Tensor y = layer.attention({.x = at::randn({2, kTokens, kWidth})}, context);
  EXPECT_TRUE(y.isfinite().all().item<bool>());
  ASSERT_EQ(recorder.at("chosen").sizes().vec(), (std::vector<std::int64_t>{2, kHeads, 2}));
  const at::Tensor of_any = at::zeros({2, kTokens}, at::kBool).scatter(1, recorder.at("chosen").flatten(1), true);
  EXPECT_TRUE(at::equal(y.ne(0.0).any(-1), of_any));
}

}  // namespace headroom::nn::sparse_heads_test
