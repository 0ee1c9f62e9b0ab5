// Observing and replacing the intermediate values of a forward pass: to record or count them, or to ablate a head or an
// expert.
//
// A value's name begins with its place: "layer3.", in an encoder-decoder "encoder.layer3." or "decoder.layer3.". While
// decoding the names are the same, and T counts the call's tokens. Sequences decoded in one batch share a value, except
// that scores, probabilities and head maps come once for each sequence, in their order, as does every value of a
// sequence that reads several tokens.
//
// Letters: B batch, T queries, S keys, d d_model, H heads, G key/value heads, e d_head, E experts, K routed experts.
// Values marked (*) are read-only: the observer's replacement is ignored.
//   embedding                        [B, T, d] input of the first layer
//   layer3.out                       [B, T, d] output of the layer
//   norm_f                           [B, T, d] after the final norm; decoding: of the last token only, T = 1
//   layer3.attention. (layer3.cross.: cross-attention; S are the source's tokens)
//     x, source (*)                  [B, T, d], [B, S, d] inputs of the layer
//     source_value (*)               [B, S, d] what values are projected from, in peri layers
//     q                              [B, H, T, e] normalised and rotated
//     k, v                           [B, G, S, e] likewise; decoding: of the call's tokens only, of a source once
//     k2, k3, ...                    a mixture's further keys; gated delta: k2 [B, H, T, 2] is beta and the log decay
//     scores, scores_composed        [B, H, T, S] not masked, before and after heads are composed
//     probs, probs_composed          [B, H, T, S] the weights, before and after heads are composed
//                                    differential heads: q, scores and probs have the two matrices of head h at 2h and
//                                    2h + 1, probs_composed their difference
//     key_map, query_map (*)         [B, S, stages, H, H], [B, T, stages, H, H] head maps of one side [from, to]
//     key_terms, query_terms (*)     [B, S, stages, 2, H, H], [B, T, ..] low-rank map and gates of one side, without
//                                    the fixed map and the identity
//     responsibilities (*)           [B, R, H, T, S] a mixture's components' shares of each weight
//     o                              [B, H, T, w] head outputs; 0 for a head ablates it
//     gate (*)                       [B, H, T, 1 or w] gate on the head outputs, in layers that have one
//     difference                     [B, H, T, w] differential heads: the weighted sums of the values, before the norm
//     lambda (*)                     [B, H, T, 1] or [1] factor of the second matrix
//     head_norm (*)                  [B, H, T, w] the norm's factor of a head output, in layers that have one
//     value_sum                      [B, H, T, w] o before the exclusion of own values and its gate, in layers that
//                                    have either
//     slopes (*)                     [H] position = alibi
//     log_forget (*)                 [B, S, H] logarithms of the forget gates; padding included
//     rotary, latent (*)             [B, S, p], [B, S, r] the cached form of a token with latent heads
//     key, value (*)                 [B, S, H, e], [B, S, H, w] keys and values of all heads, where they are computed
//                                    from another cached form: both with factored heads, the value with latent heads
//     chosen (*)                     [B, n_heads, k] the tokens that sparse heads select, ascending
//     out                            [B, T, d]
//     select_in., select_out.        routing of the source's and the queries' tokens to the experts of each head:
//       score, index, weight         [B S or B T, H, E], [.., H, K], [.., H, K], in this order; weight 0 ablates an
//                                    expert
//     select.score, .index, .weight  routing to heads, [B T, 1, E or K]; routed queries: of the G groups, [B T, G, ..]
//     select.prob, select.count      [B T, E], [E], if the layer has routing losses and they are computed; of G > 1
//                                    groups [B T, G, E], [G, E]
//   layer3.ffn.x (*)               [B, T, d] an MLP's input
//   layer3.ffn.select.*, layer3.ffn.out  its routing, [B T, 1, E or K], and its output [B, T, d]
// A routing shared by both sides is shown as select_in and as select_out. Scores and probabilities of pairs exist only
// in the reference implementation, which a layer uses if the observer wants them. Linear attention and
// the gated delta rule have no scores; their "probs" are the weights of the values (*), which may be negative for the
// latter. The q, k and v of the gated delta rule are those after its convolution.
#pragma once

#include <ATen/ATen.h>

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::nn {

class Observer {
 public:
  virtual ~Observer() = default;
  // Whether observe() is called for this name. Must always return the same answer for a name.
  virtual bool wants(std::string_view name) const = 0;
  // Returns the value with which the forward pass continues: `value`, or one of the same shape, type and device.
  virtual at::Tensor observe(std::string_view name, at::Tensor value) = 0;
};

// The values that have one element per query-key pair.
inline constexpr std::array<std::string_view, 4> kPairValues = {"scores", "scores_composed", "probs", "probs_composed"};

// Whether `name` matches `pattern`, in which * matches any characters except dots: "layer*.attention.probs".
bool matches(std::string_view pattern, std::string_view name);

// Records the values that match one of its patterns; a later value replaces an earlier one of the same name.
class Recorder : public Observer {
 public:
  explicit Recorder(std::vector<std::string> patterns) : patterns_(std::move(patterns)) {}
  bool wants(std::string_view name) const override;
  at::Tensor observe(std::string_view name, at::Tensor value) override;
  const at::Tensor& at(std::string_view name) const;  // throws Error naming the missing value

  std::map<std::string, at::Tensor, std::less<>> values;

 private:
  std::vector<std::string> patterns_;
};

}  // namespace headroom::nn
