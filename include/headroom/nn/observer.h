// Looking into a forward pass, and changing its intermediate values: recording, counting, switching a head or an
// expert off.
//
// A value has a name, preceded by where it is: "layer3.", in an encoder-decoder "encoder.layer3." or "decoder.layer3.".
// Only those that an observer wants are handed to it, and what it returns is used in their place. While decoding the
// names are the same, and T counts the call's tokens. Sequences that are decoded side by side share a value; scores,
// probabilities and head maps come once for each, in their order, as does everything of one that reads several tokens.
//
// Letters: B batch, T queries, S keys, d d_model, H heads, G key/value heads, e d_head, E experts, K chosen.
//   embedding                        [B, T, d] what the first layer reads
//   layer3.out                       [B, T, d] after the layer
//   norm_f                           [B, T, d] after the final norm; decoding: of the last token alone, T = 1
//   layer3.attention. (layer3.cross.: cross-attention, whose S are the source's tokens)
//     x, source                      [B, T, d], [B, S, d] what the layer reads; the result is not used
//     q                              [B, H, T, e] as the scores take them, normalised and rotated
//     k, v                           [B, G, S, e] likewise; decoding: of the call's tokens alone, of a source once
//     k2, k3, ...                    the same of a mixture's other keys
//     scores, scores_composed        [B, H, T, S] not masked, before and after heads compose
//     probs, probs_composed          [B, H, T, S] the weights, before and after heads compose
//     key_map, query_map             [B, S, stages, H, H], [B, T, stages, H, H] head maps with one side's part alone,
//                                    from head, to head; the result is not used
//     key_terms, query_terms         [B, S, stages, 2, H, H], [B, T, ..] the low-rank map and the gates of one side,
//                                    without the fixed map and the identity; the result is not used
//     responsibilities               [B, R, H, T, S] a mixture's components' shares of each weight; the result is not
//                                    used
//     o                              [B, H, T, w] the heads' results; with 0 for a head, it is switched off
//     gate                           [B, H, T, 1 or w] what o is multiplied by, in layers that have one; the result is
//                                    not used
//     value_sum                      [B, H, T, w] o before its gate, in layers that have one
//     rotary, latent                 [B, S, p], [B, S, r] what latent heads keep of each token; the result is not used
//     out                            [B, T, d]
//     select_in., select_out.        choices of the source's and the queries' tokens among the experts of each head:
//       score, index, weight         [B S or B T, H, E], [.., H, K], [.., H, K], in this order; with weight 0 an
//                                    expert is switched off
//     select.score, .index, .weight  the same choices among heads, [B T, 1, E or K]
//     select.prob, select.count      [B T, E], [E], where the layer has losses of its routing and they are asked for
//   layer3.ffn.select.*, layer3.ffn.out  an MLP's choice among experts, [B T, 1, E or K], and its result [B, T, d]
// A choice that serves both sides is select_in and select_out. Scores and probabilities of every pair are computed by
// the reference alone, which a layer takes when they are asked of it. Linear attention has no scores, and of its
// "probs", what a query takes of each value, the result is not used.
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
  // Whether this value is asked for. It may not depend on when it is called.
  virtual bool wants(std::string_view name) const = 0;
  // `value` itself, or what the forward pass is to continue with: of the same shape, type and device.
  virtual at::Tensor observe(std::string_view name, at::Tensor value) = 0;
};

// The values of every pair of query and key.
inline constexpr std::array<std::string_view, 4> kPairValues = {"scores", "scores_composed", "probs", "probs_composed"};

// Whether `name` fits `pattern`, in which * matches any characters but dots: "layer*.attention.probs".
bool matches(std::string_view pattern, std::string_view name);

// Keeps the values that fit one of its patterns, the last of each name.
class Recorder : public Observer {
 public:
  explicit Recorder(std::vector<std::string> patterns) : patterns_(std::move(patterns)) {}
  bool wants(std::string_view name) const override;
  at::Tensor observe(std::string_view name, at::Tensor value) override;
  const at::Tensor& at(std::string_view name) const;  // throws Error naming it

  std::map<std::string, at::Tensor, std::less<>> values;

 private:
  std::vector<std::string> patterns_;
};

}  // namespace headroom::nn
