// Gated attention (Qiu et al. 2025, "Gated Attention for Large Language Models"): with x_i the query's token after the
// norm, o_i^h <- sigmoid(x_i W_gate^h + b_gate^h) o_i^h before the output projection. Each head has one gate, or one
// for each of its channels.
#include "engine/nn/linear.h"
#include "engine/ops/many_rows.h"
#include "headroom/config/attention_part.h"
#include "headroom/nn/attention_parts.h"

namespace headroom::nn {
namespace {

// Letters as in attention_parts.h; X all heads, c gates of each.
class SigmoidGate : public OutputGate {
 public:
  // Parameters "w_gate" and, with bias, "b_gate". Heads that every token uses: [d, H, c] and [H, c], without c for one
  // gate per head. Routed heads: [X, d, c] and [X, c].
  SigmoidGate(bool per_channel, const config::AttentionOptions& options, const LayerInit& init, const Builder& build)
      : gates_(per_channel ? options.value_width() : 1), fixed_heads_(options.projection->has_fixed_heads()) {
    const std::int64_t d = init.d_model, heads = options.projection->all_heads(options);
    std::vector<std::int64_t> bias = {heads};
    if (per_channel || !fixed_heads_) {
      bias.push_back(gates_);
    }
    std::vector<std::int64_t> shape = bias;
    shape.insert(shape.begin() + (fixed_heads_ ? 0 : 1), d);
    w_ = build.for_matmul().matrix("w_gate", shape, Distribution::normal(init.scaled(d)),
                                   {.in = d, .out = fixed_heads_ ? heads * gates_ : gates_});
    if (options.bias) {
      b_ = build.bias("b_gate", bias, d);
    }
  }

  at::Tensor operator()(const at::Tensor& x, const Heads& heads, const Context& context) const override {
    const at::Tensor score =
        fixed_heads_ ? linear(x, w_, b_, context) : routed_scores(x, *heads.query_routing, context);
    const c10::SymInt b = x.sym_size(0), t = x.sym_size(1);
    return by_rows(score, context,
                   [&](const auto& part) {
                     return ops::elementwise(part(score), [](const at::Tensor& some) { return some.sigmoid(); });
                   })
        .view_symint({b, t, -1, gates_})
        .transpose(1, 2);
  }

 private:
  // Each routed head becomes a slot: [N, 1, k] to [N, k, 1].
  at::Tensor routed_scores(const at::Tensor& x, const Routing& routing, const Context& context) const {
    const at::Tensor slots = routing.index.transpose(1, 2);
    const at::Tensor score = expert_matmul(
        {.input = to_compute(x.flatten(0, 1), context), .bank = to_compute(w_, context), .index = slots}, context);
    return b_.defined() ? score + to_compute(b_, context).index({slots.squeeze(2)}) : score;
  }

  std::int64_t gates_;
  bool fixed_heads_;
  at::Tensor w_, b_;
};

template <bool kPerChannel>
std::unique_ptr<OutputGate> make_sigmoid_gate(const config::AttentionOptions& options, const LayerInit& init,
                                              const Builder& build) {
  return std::make_unique<SigmoidGate>(kPerChannel, options, init, build);
}

const Factory<MakeOutputGate> kHeadGate("head", make_sigmoid_gate<false>);
const Factory<MakeOutputGate> kElementGate("element", make_sigmoid_gate<true>);

const Factory<MakeOutputGate> kNoOutputGate("none",
                                            [](const config::AttentionOptions&, const LayerInit&,
                                               const Builder&) -> std::unique_ptr<OutputGate> { return nullptr; });

}  // namespace
}  // namespace headroom::nn
