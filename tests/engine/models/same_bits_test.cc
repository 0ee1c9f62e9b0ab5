// Tests that a text has the same bits in any batch and in any pieces, for every pair of attention parts, in sizes that
// are not multiples of a SIMD vector.
#include <ATen/core/grad_mode.h>

#include "engine/models/model_base.h"
#include "engine/nn/combinations.h"
#include "headroom/config/part_options.h"
#include "headroom/models/language_model.h"
#include "small_models.h"

namespace headroom::models::same_bits_test {

constexpr std::int64_t kMost = 16, kTokens = 45;

config::ModelOptions odd_model(std::int64_t d_head) {
  config::ModelOptions m = testing::small_model();
  m.n_layers = 1;
  m.vocabulary_size = 53;
  m.context_length = kTokens + 2;
  m.d_model = 37;
  m.attention.d_head = d_head;
  m.mlp.d_hidden = 19;
  m.attention.of<config::RoutingOptions>().n_experts = 5;
  return m;
}

// Returns models with every pair of settings from two parts, and with every kind of MLP.
testing::Models odd_models() {
  testing::Models all;
  const std::vector<testing::Choice> axes[] = {testing::projections(), testing::scores(),       testing::compositions(),
                                               testing::positions(),   testing::output_gates(), testing::masks()};
  for (std::size_t a = 0; a < std::size(axes); ++a) {
    for (std::size_t b = a + 1; b < std::size(axes); ++b) {
      for (const testing::Choice& first : axes[a]) {
        for (const testing::Choice& second : axes[b]) {
          for (const std::int64_t d_head : {13, 14, 16}) {  // some parts need an even d_head, or a multiple of 4
            config::ModelOptions m = odd_model(d_head);
            first.set(m);
            second.set(m);
            if (m.kind == config::ModelKind::language_model && testing::refusal(m).empty()) {
              all.emplace_back(first.name + " / " + second.name, m);
              break;
            }
          }
        }
      }
    }
  }
  std::vector<testing::Change> changes;
  for (const std::string activation : {"relu", "gelu", "gelu_tanh", "silu"}) {
    const std::string set = " mlp.activation=" + activation;
    changes.push_back({"dense " + activation, "", "mlp.kind=dense" + set});
    changes.push_back({"gated " + activation, "", "mlp.kind=gated d_model=38" + set});
    for (const std::string kind : {"dense", "gated"}) {
      changes.push_back({kind + " experts " + activation, "",
                         "mlp.kind=experts mlp.n_experts=5 mlp.top_k=2 mlp.expert_kind=" + kind + set});
    }
  }
  for (const std::string gate : {"sigmoid", "softmax_top_k", "softmax", "softmax_renormalised"}) {
    changes.push_back({"clamped experts, gate " + gate, "",
                       "mlp.kind=experts mlp.n_experts=5 mlp.top_k=2 mlp.expert_kind=clamped mlp.expert_bias=all "
                       "mlp.gate=" +
                           gate});
  }
  changes.push_back({"shared gate", "",
                     "mlp.kind=experts mlp.n_experts=5 mlp.top_k=2 mlp.expert_kind=gated mlp.d_shared=23 "
                     "mlp.shared_gate=true norm=rms"});
  changes.push_back(
      {"groups of hidden units", "", "mlp.kind=gated mlp.d_hidden=21 mlp.hidden_groups=3 mlp.bias=false"});
  for (auto& [name, m] : testing::models_of(odd_model(14), changes)) {
    EXPECT_EQ(testing::refusal(m), "") << name;
    all.emplace_back(name, m);
  }
  return all;
}

// Returns the logits [N, T, V] of the texts [N, T], as `evaluate` computes them.
at::Tensor read(const LanguageModel& model, const at::Tensor& texts) {
  Memory memory;
  return model.logits(texts, memory, {.split_invariant = true});
}

// Decodes the last two tokens one by one, and returns the logits [N, V] after each.
std::vector<at::Tensor> decoded(const LanguageModel& model, const at::Tensor& texts) {
  std::vector<DecodeState> states(static_cast<std::size_t>(texts.size(0)), model.start_decoding());
  std::vector<at::Tensor> all;
  std::int64_t begin = 0;
  for (const std::int64_t n : {kTokens - 2, std::int64_t{1}, std::int64_t{1}}) {
    all.push_back(testing::decode(model, texts.narrow(1, begin, n), states));
    begin += n;
  }
  return {all.begin() + 1, all.end()};
}

// Returns whether sums over keys depend on the pieces: a window moves their first key, or a state carries them from
// chunk to chunk.
bool depends_on_pieces(const config::AttentionOptions& a) {
  const bool formula = !a.of<config::DotOptions>().formula.empty();  // with a cumulative term
  return a.score == "linear" || a.score->is_recurrent() ||
         (a.window > 0 && (a.score == "sigmoid" || a.position == "forgetting" || formula)) ||
         (formula && (a.position->has_distances() || a.composition.name() != "none"));  // softmax of the reference
}

// Reads one text in pieces and returns the logits [T, V].
at::Tensor in_pieces(const LanguageModel& model, const at::Tensor& text) {
  const std::int64_t* tokens = text.const_data_ptr<std::int64_t>();
  DecodeState state = model.start_decoding();
  std::vector<at::Tensor> pieces;
  std::int64_t begin = 0;
  for (const std::size_t n : {3U, 1U, 7U, 1U, 33U}) {
    pieces.push_back(model.decode_each({&state, {tokens + begin, n}}, {.split_invariant = true}));
    begin += static_cast<std::int64_t>(n);
  }
  return at::cat(pieces);
}

TEST(SameBits, InBatchesOfAnySize) {
  const at::NoGradGuard no_grad;
  const testing::Models all = odd_models();
  EXPECT_GT(all.size(), 500U);
  for (const auto& [name, options] : all) {
    const LanguageModel model(options, 3);
    const at::Tensor texts = random_ids(options.vocabulary_size, {kMost, kTokens}, 1);
    const at::Tensor whole = read(model, texts);
    const std::vector<at::Tensor> steps = decoded(model, texts);
    if (!depends_on_pieces(options.attention)) {
      EXPECT_TRUE(in_pieces(model, texts[5]).equal(whole[5])) << name << ": in pieces";
    }
    if (!options.attention.score->is_recurrent()) {  // later tokens, such as padding, have no effect
      EXPECT_TRUE(read(model, texts.narrow(1, 0, 20)).equal(whole.narrow(1, 0, 20))) << name << ": 20 tokens";
    }
    for (const std::int64_t n : {1, 2, 3}) {
      const std::int64_t begin = n == 1 ? kMost - 1 : n;  // another row of the batch
      EXPECT_TRUE(read(model, texts.narrow(0, begin, n)).equal(whole.narrow(0, begin, n)))
          << name << ": " << n << " texts";
      const std::vector<at::Tensor> some = decoded(model, texts.narrow(0, begin, n));
      for (std::size_t i = 0; i < some.size(); ++i) {
        EXPECT_TRUE(some[i].equal(steps[i].narrow(0, begin, n))) << name << ": " << n << " rows, step " << i;
      }
    }
  }
}

}  // namespace headroom::models::same_bits_test
