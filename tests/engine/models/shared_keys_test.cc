// Compares layers that share keys and values (attention.share_kv), layers without attention and layers without MLP with
// the same layers in plain tensor operations.

#include "engine/models/block.h"
#include "engine/nn/layer.h"
#include "small_models.h"

namespace headroom::models::shared_keys_test {

using testing::relative_error;

constexpr std::int64_t kTokens = 6, kMemory = 3, kSource = kTokens + kMemory, kWidth = 12, kGroups = 2, kHead = 6;
constexpr double kBase = 10000.0, kEpsilon = 1e-6;

// Rotates x [B, H, n, e], whose row 0 has position `first`.
at::Tensor rotated(const at::Tensor& x, std::int64_t first) {
  std::vector<at::Tensor> rows;
  for (std::int64_t i = 0; i < x.size(2); ++i) {
    rows.push_back(nn::rotated(x.select(2, i), first + i, kBase));
  }
  return at::stack(rows, 2);
}

// Returns softmax(q K^T / sqrt(e)) V W_o with the keys and values of layer `owner`, which reads `below` [B, S, d].
at::Tensor written_out(const nn::Layer& own, const at::Tensor& x, const nn::Layer& owner, const at::Tensor& below,
                       std::int64_t window) {
  const at::Tensor q_norm = own.at("q_norm");
  at::Tensor q = at::einsum("btd,dhe->bhte", {x, own.at("w_q")});
  q = rotated(q * (q.square().mean(-1, true) + kEpsilon).rsqrt() * q_norm, kMemory);
  const std::int64_t group = q.size(1) / kGroups;
  const at::Tensor k = rotated(at::einsum("bsd,dge->bgse", {below, owner.at("w_k")}), 0).repeat_interleave(group, 1);
  const at::Tensor v = at::einsum("bsd,dge->bgse", {below, owner.at("w_v")}).repeat_interleave(group, 1);
  const at::Tensor distance = at::arange(kMemory, kSource).unsqueeze(1) - at::arange(kSource).unsqueeze(0);
  const at::Tensor hidden = distance.lt(0).logical_or(distance.ge(window));
  const at::Tensor scores = q.matmul(k.transpose(2, 3)) / std::sqrt(static_cast<double>(kHead));
  return at::einsum("bhte,hed->btd", {scores.masked_fill(hidden, -INFINITY).softmax(-1).matmul(v), own.at("w_o")});
}

TEST(SharedKeys, MatchTheOwnerWithAllGradients) {
  const nn::AttentionPlace place{.d_model = kWidth, .layer = 0, .context_length = kTokens, .memory_length = kMemory};
  nn::AttentionPlace local = place;
  local.window = 4;
  config::AttentionOptions o;
  o.n_heads = kGroups;
  o.d_head = kHead;
  const nn::Layer owner(o, place, at::kDouble, 0.4);
  o.n_heads = 2 * kGroups;
  o.n_kv_heads = kGroups;
  o.share_kv = 1;
  o.qk_norm = true;
  const nn::Layer sharer(o, local, at::kDouble, 0.4);
  EXPECT_EQ(sharer.parameters.count(), 2 * kWidth * 2 * kGroups * kHead + kHead) << "w_q, w_o and q_norm alone";
  at::manual_seed(3);
  const at::Tensor below = at::randn({2, kSource, kWidth}, at::kDouble).requires_grad_(true),
                   x = at::randn({2, kSource, kWidth}, at::kDouble).requires_grad_(true);
  std::vector<at::Tensor> leaves = {below, x};
  for (const char* name : {"w_k", "w_v"}) {
    leaves.push_back(owner.at(name));
  }
  for (const nn::Parameter& p : sharer.parameters.all()) {
    leaves.push_back(p.tensor);
  }
  const auto last = [](const at::Tensor& all) { return all.narrow(1, kMemory, kTokens); };
  std::vector<ops::SequenceKeys> shared;
  nn::AttentionInput input{.x = last(below), .source = below};
  input.shared_keys = &shared;
  owner.attention(input, {});
  input.x = last(x);
  input.source = x;
  const at::Tensor y = sharer.attention(input, {}), expected = written_out(sharer, last(x), owner, below, local.window);
  EXPECT_LE(relative_error(y, expected), 1e-13);
  const auto gradients = [&](const at::Tensor& result) {
    const at::Tensor weight = at::cos(at::arange(result.numel(), at::kDouble)).view(result.sizes());
    return torch::autograd::grad({(result * weight).sum()}, leaves);
  };
  const auto of_layer = gradients(y), of_operations = gradients(expected);
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    EXPECT_LE(relative_error(of_layer[i], of_operations[i]), 1e-12) << i;
  }
}

// Builds a block whose options this change modifies.
struct OneBlock {
  nn::Parameters parameters;
  std::unique_ptr<Block> block;

  explicit OneBlock(const std::string& change) {
    const config::ModelOptions o = tiny::changed(tiny::model(), "", "norm=rms output_norms=true " + change);
    block = std::make_unique<Block>(o, nn::AttentionPlace{.d_model = o.d_model, .context_length = o.context_length},
                                    nn::Builder(parameters, nn::ParameterSource(1, at::kDouble)));
  }
  at::Tensor run(const at::Tensor& h) const { return (*block)(BlockInput{.h = h}, {}); }
  at::Tensor at(const char* name) const { return parameters.at(name); }
  at::Tensor norm(const at::Tensor& x, const std::string& name) const {
    return at::rms_norm(x, {x.size(-1)}, parameters.at(name + ".scale"), 1e-5);
  }
};

TEST(BlockWithoutAttention, IsItsMlp) {
  const at::Tensor h = at::randn({2, 5, 12}, at::kDouble);
  for (const std::string position : {"pre", "post"}) {
    const OneBlock one("attention.n_heads=0 norm_position=" + position);
    EXPECT_EQ(one.parameters.all().size(), 6U) << "two norms, two matrices, two biases";
    const bool pre = position == "pre";
    const at::Tensor x = pre ? one.norm(h, "norm_2") : h;
    const at::Tensor y =
        at::gelu(x.matmul(one.at("ffn.w_up")) + one.at("ffn.b_up")).matmul(one.at("ffn.w_down")) + one.at("ffn.b_down");
    const at::Tensor sum = h + one.norm(y, "norm_2_out");
    EXPECT_LE(relative_error(one.run(h), pre ? sum : one.norm(sum, "norm_2")), 1e-13) << position;
  }
}

TEST(BlockWithoutMlp, IsItsAttention) {
  const at::Tensor h = at::randn({2, 5, 12}, at::kDouble);
  for (const std::string position : {"pre", "post"}) {
    const OneBlock one("mlp.kind=none norm_position=" + position);
    EXPECT_EQ(one.parameters.all().size(), 6U) << "two norms, four matrices";
    config::AttentionOptions o = tiny::model().attention;
    nn::Layer attention(o, {.d_model = 12, .context_length = 8});
    {
      const at::NoGradGuard no_grad;
      for (const nn::Parameter& p : attention.parameters.all()) {
        at::Tensor to = p.tensor;
        to.copy_(one.parameters.at("attention." + p.name));
      }
    }
    const bool pre = position == "pre";
    const at::Tensor x = pre ? one.norm(h, "norm_1") : h;
    const at::Tensor sum = h + one.norm(attention.last(x, x.size(1)), "norm_1_out");
    EXPECT_LE(relative_error(one.run(h), pre ? sum : one.norm(sum, "norm_1")), 1e-13) << position;
  }
}

}  // namespace headroom::models::shared_keys_test
