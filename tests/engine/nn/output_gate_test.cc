// Compares gated and exclusive attention with their equations, for every projection. The same layer without a gate
// gives the head outputs. combinations_test.cc covers gradients, decoding, padding and combinations.

#include "combinations.h"
#include "headroom/config/part_options.h"
#include "layer.h"
#include "one_thread.h"

namespace headroom::nn::output_gate_test {

using testing::relative_error;

Layer gated_layer(const config::ModelOptions& m, at::ScalarType type) {
  return Layer(m.attention, {.d_model = m.d_model, .context_length = m.context_length}, type, /*noise=*/0.5);
}

std::map<std::string, at::Tensor> trace_of(const Layer& layer, const at::Tensor& x, at::Tensor* y) {
  Recorder recorder({"*", "*.*"});
  const Context context{.observer = &recorder};
  *y = layer.attention({.x = x}, context);
  return {recorder.values.begin(), recorder.values.end()};
}

// Computes the gates [B, T, H, 1 or w] token by token.
at::Tensor written_out(const Layer& layer, const config::AttentionOptions& o, const at::Tensor& whole,
                       const std::map<std::string, at::Tensor>& trace) {
  const std::int64_t channels = o.of<config::OutputGateOptions>().gate_channels;
  const at::Tensor x = channels > 0 ? whole.slice(2, 0, channels) : whole;
  const std::int64_t n = x.size(1), gates = o.gate_output == "head" ? 1 : o.value_width();
  at::Tensor w = layer.at("w_gate");
  const at::Tensor b = o.bias ? layer.at("b_gate").view({-1, gates}) : at::zeros({w.size(1), 1}, w.options());
  const bool chosen = !o.projection->has_fixed_heads();
  w = chosen ? w : w.view({x.size(2), o.computed_heads(), gates}).transpose(0, 1);  // [X, d, c]
  at::Tensor gate = at::empty({x.size(0), n, o.computed_heads(), gates}, x.options());
  for (std::int64_t s = 0; s < x.size(0); ++s) {
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t h = 0; h < o.computed_heads(); ++h) {
        const std::int64_t top_k = chosen ? trace.at("select.index").size(2) : 1, group = chosen ? h / top_k : 0;
        const std::int64_t head =
            chosen ? group * o.projection->router_width(o) +
                         trace.at("select.index").view({x.size(0), n, -1})[s][i][h].item<std::int64_t>()
                   : h;
        gate[s][i][h] = (x[s][i].matmul(w[head]) + b[head]).sigmoid();
      }
    }
  }
  return gate;
}

// Returns the projection's gates [B, T, H, 1] from the same layer without an output gate; undefined without such gates.
at::Tensor without_output_gate(const Layer& layer, config::ModelOptions m, const at::Tensor& x) {
  m.attention.gate_output = "none";
  const Layer plain = gated_layer(m, at::kDouble);
  for (const Parameter& p : plain.parameters.all()) {
    p.tensor.copy_(layer.at(p.name));
  }
  at::Tensor y;
  const auto trace = trace_of(plain, x, &y);
  return trace.contains("gate") ? trace.at("gate").transpose(1, 2) : at::Tensor();
}

TEST(OutputGate, MultipliesTheHeadsResults) {
  const at::NoGradGuard no_grad;
  for (const testing::Choice& projection : testing::projections()) {
    for (const auto& [gate, channels] : {std::pair{"head", 0}, {"element", 0}, {"head", 1}, {"element", 4}}) {
      config::ModelOptions m = testing::small_model();
      m.kind = config::ModelKind::classifier;  // allows every projection
      m.n_classes = 2;
      projection.set(m);
      m.attention.gate_output = gate;
      m.attention.of<config::OutputGateOptions>().gate_channels = channels;
      m.attention.bias = true;
      m.attention.bias = testing::refusal(m).empty();  // some projections have no biases
      const std::string name = fmt::format("{} / {} of {} channels", projection.name, gate, channels);
      ASSERT_EQ(testing::refusal(m), "") << name;
      const Layer layer = gated_layer(m, at::kDouble);
      at::manual_seed(3);
      const at::Tensor x = at::randn({2, 5, m.d_model}, at::kDouble);
      at::Tensor y;
      const auto trace = trace_of(layer, x, &y);
      at::Tensor expected = trace.at("value_sum").transpose(1, 2) * written_out(layer, m.attention, x, trace);
      if (const at::Tensor own = without_output_gate(layer, m, x); own.defined()) {
        expected = expected * own;
      }
      EXPECT_LE(relative_error(trace.at("o").transpose(1, 2), expected), 1e-14) << name;
      if (m.attention.projection == "dense") {
        const at::Tensor out = at::einsum("bthe,hed->btd", {expected, layer.at("w_o")});
        EXPECT_LE(relative_error(y, out + layer.at("b_o")), 1e-13) << name;
      }
    }
  }
}

// The equation is o_i - (o_i . v_i / |v_i|^2) v_i, computed for each head and token; v_i is the token's value. A zero
// value removes nothing. The test covers all scores, and groups of heads that share a value.
TEST(Exclusive, RemovesTheTokensOwnValue) {
  const at::NoGradGuard no_grad;
  for (const testing::Choice& score : testing::scores()) {
    config::ModelOptions m =
        tiny::changed(testing::small_model(), "",
                      "attention.n_heads=4 attention.n_kv_heads=2 attention.gate_output=head attention.exclusive=true");
    score.set(m);
    if (m.attention.score == "gated_delta") {
      m.attention.position = "none";
      m.attention.n_kv_heads = 0;
    }
    ASSERT_EQ(testing::refusal(m), "") << score.name;
    const Layer layer = gated_layer(m, at::kDouble);
    at::manual_seed(3);
    const at::Tensor x = at::randn({2, 5, m.d_model}, at::kDouble);
    x[1][3].zero_();  // makes the value 0
    at::Tensor y;
    const auto trace = trace_of(layer, x, &y);
    at::Tensor expected = trace.at("value_sum").clone();
    for (std::int64_t b = 0; b < 2; ++b) {
      for (std::int64_t h = 0; h < 4; ++h) {
        for (std::int64_t i = 0; i < 5; ++i) {
          const at::Tensor v = trace.at("v")[b][h * trace.at("v").size(1) / 4][i], o = expected[b][h][i];
          if (v.dot(v).item<double>() > 0.0) {
            o.sub_(v * (o.dot(v) / v.dot(v)));
            EXPECT_LE(std::abs(o.dot(v).item<double>()), 1e-12) << score.name;
          }
        }
      }
    }
    if (m.attention.score != "gated_delta") {  // its values also depend on earlier tokens
      EXPECT_EQ(trace.at("v")[1][0][3].abs().max().item<double>(), 0.0);
    }
    EXPECT_LE(relative_error(trace.at("o"), expected * trace.at("gate")), 1e-13) << score.name;
  }
}

TEST(Exclusive, IsRefusedAcrossSequences) {
  config::ModelOptions m = testing::small_model();
  m.attention.position = "none";
  m.attention.of<config::OutputGateOptions>().exclusive = true;
  Parameters parameters;
  const Builder build(parameters, ParameterSource(1));
  const AttentionPlace cross{.d_model = m.d_model, .causal = false, .cross = true};
  EXPECT_THROW(Attention(m.attention, cross, build), UserError);
  EXPECT_NO_THROW(Attention(m.attention.across_sequences(), cross, build));
}

}  // namespace headroom::nn::output_gate_test
