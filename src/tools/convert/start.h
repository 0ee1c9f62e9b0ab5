// The starting values of a converted attention layer, from the source layer's parameters and the sums of its heads.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "activations.h"
#include "headroom/config/attention_options.h"
#include "headroom/config/model_options.h"
#include "headroom/nn/parameters.h"

namespace headroom::convert {

// Whether a layer has softmax attention with dense projections and without composition.
bool is_dense(const config::AttentionOptions& options);

// Returns the parameter "place.name", or an undefined tensor if there is none.
at::Tensor find_parameter(const nn::Parameters& in, const std::string& place, std::string_view name);

struct StartRequest {
  const config::AttentionOptions& from;
  const config::AttentionOptions& to;
  const nn::Parameters& source;            // has "layer3.attention.w_q" and so on
  const nn::Parameters& target;            // freshly initialised; written in place
  std::string place;                       // "layer3.attention"
  std::function<HeadSums()> sums;          // called only to refit values and outputs
  std::function<at::Tensor()> covariance;  // of the source tokens; called only for shared keys or a latent
};

// Writes the layer's starting values into `target`. Returns whether the layer then computes the same as the source's
// layer, up to rounding.
//
//   as many heads of the same width   all matrices are copied; composed heads start as the identity (no low-rank terms,
//                                     gates of 0), gates on the head outputs at 1/2 with doubled outputs; sinks start
//                                     with almost no weight (nearly exact)
//   fewer heads                       choose_heads(); their W_q and W_k are kept, values and outputs refitted
//   fewer keys and values             the mean over each group of heads; outputs refitted
//   experts                           every expert of a head starts as the head's matrix / the sum of the gates
//   several keys                      the head's own key, with noise of 0.1 of its deviation
//   latent                            the heads' keys of the highest frequencies become one shared rotated key
//                                     (share_rotated); the others and the values a latent (low_rank)
//   routed heads                      as many experts as heads: their queries and outputs; shared keys and values
//
// Wider heads: queries get new columns, keys get 0 there, and both are scaled so that the scores stay.
bool start_layer(const StartRequest& request);

// A layer of the source whose heads are to share keys and values; the first of several layers is the owner.
struct SharingLayer {
  std::string place;    // "layer3.attention"
  at::Tensor source;    // the source tokens, [N, d]
  double weight = 1.0;  // weight of the output
};

// Whether start_shared() can start the layer: its heads have no parameters besides the matrices, and the scores are of
// rotated or plain channels.
bool can_share(const config::AttentionOptions& options);

// Writes starting values of layers whose heads share keys and values; heads and width must equal the source's. `owner`:
// options of the first layer in the target. Ridge regression predicts the tokens of all layers from the owner's tokens;
// keys and values are then the best ones for all heads that share them (share_rotated, share_plain, low_rank).
void start_shared(const std::vector<SharingLayer>& layers, const config::AttentionOptions& owner,
                  const nn::Parameters& source, const nn::Parameters& target);

// The starting values of an expert MLP from the hidden units of a dense or gated MLP, after MoEfication (Zhang et al.
// 2022): units that are active together form an expert, and the router predicts how much an expert contributes.

struct MlpStartRequest {
  const config::MlpOptions& from;      // dense or gated
  const config::MlpOptions& to;        // experts of the same kind, with the same number of hidden units in total
  const nn::Parameters& source;        // has "layer3.ffn.w_up" and so on
  const nn::Parameters& target;        // freshly initialised; written in place
  std::string place;                   // "layer3.ffn"
  std::function<at::Tensor()> inputs;  // of the MLP, [N, d]; called unless all experts are active
};

// Writes the starting values into `target`. Returns true if all experts are active: the MLP then computes what the
// source's MLP computes, up to rounding. Experts are then neighbouring units, and the router starts at 0, so all gates
// are equal. Outputs are divided by the gates' initial size.
bool start_mlp(const MlpStartRequest& request);

// Divides units into `groups` groups of equal size by their features [units, n]: balanced k-means by cosine similarity,
// starting from the most distant units. Returns the units in the order of their groups, int64.
at::Tensor balanced_groups(const at::Tensor& features, std::int64_t groups);

}  // namespace headroom::convert
