// Gated attention (Qiu et al. 2025, "Gated Attention for Large Language Models"): with x_i the query's token after the
// norm, o_i^h <- sigmoid(x_i W_gate^h + b_gate^h) o_i^h before the output projection. Each head has one gate, or one
// for each of its channels; with gate_channels = c it reads only the first c channels of x_i. Exclusive self-attention
// (2026), applied before any gate: o_i^h <- o_i^h - (o_i^h . v_i / |v_i|^2) v_i with v_i the token's own value.
#include "engine/nn/linear.h"
#include "engine/ops/many_rows.h"
#include "headroom/config/attention_part.h"
#include "headroom/nn/attention_parts.h"

namespace headroom::nn {

at::Tensor exclude_own_values(const at::Tensor& o, const at::Tensor& v, const Context& context) {
  const at::ScalarType wide = o.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return by_rows(o, context, [&](const auto& part) {
    const at::Tensor own = part(v).to(wide).unsqueeze(2);                               // [B, G, 1, T, w]
    const at::Tensor from = part(o).to(wide).unflatten_symint(1, {v.sym_size(1), -1});  // [B, G, H/G, T, w]
    const at::Tensor length = own.square().sum(-1, /*keepdim=*/true);
    const at::Tensor share = (from * own).sum(-1, /*keepdim=*/true) / length.masked_fill(length.eq(0.0), 1.0);
    return at::addcmul(from, share, own, -1.0).flatten(1, 2).to(o.scalar_type());
  });
}

namespace {

// Letters as in attention_parts.h, except d: the channels of x that are read; X heads, c gates per head.
class SigmoidGate : public OutputGate {
 public:
  // Parameters "w_gate" and, with bias, "b_gate". Heads that every token uses: [d, H, c] and [H, c], without c for one
  // gate per head. Routed heads: [X, d, c] and [X, c].
  SigmoidGate(bool per_channel, const config::AttentionOptions& options, const LayerInit& init, const Builder& build)
      : gates_(per_channel ? options.value_width() : 1),
        inputs_(options.gate_output->inputs(options, init.d_model).value()),
        fixed_heads_(options.projection->has_fixed_heads()) {
    const std::int64_t d = inputs_, heads = options.projection->all_heads(options);
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

  at::Tensor operator()(const at::Tensor& whole, const Heads& heads, const Context& context) const override {
    const at::Tensor x = inputs_ == whole.sym_size(2) ? whole : whole.narrow(2, 0, inputs_);
    const at::Tensor score =
        fixed_heads_ ? linear(x, w_, b_, context) : routed_scores(x, *heads.query_routing, context);
    const at::Tensor gate = by_rows(score, context, [&](const auto& part) { return ops::sigmoid(part(score)); });
    const at::Tensor wide = fixed_heads_ ? gate : gate.unflatten_symint(0, {x.sym_size(0), x.sym_size(1)}).flatten(2);
    return wide.unflatten(2, {-1, gates_}).transpose(1, 2);
  }

 private:
  at::Tensor routed_scores(const at::Tensor& x, const Routing& routing, const Context& context) const {
    const at::Tensor slots = routing.slots();
    const at::Tensor score = expert_matmul(
        {.input = to_compute(x.flatten(0, 1), context), .bank = to_compute(w_, context), .index = slots}, context);
    return b_.defined() ? score + to_compute(b_, context).index({slots.squeeze(2)}) : score;
  }

  std::int64_t gates_, inputs_;
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
