// What the inspector shows of one model that reads one text: attention maps, contributions to each layer's output,
// choices of experts, predictions and what makes them, packed for a page. Of a classifier: the probabilities of its
// classes, about["classes"], in the place of predictions and logits.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <vector>

#include "headroom/core/json.h"
#include "headroom/models/model.h"

namespace headroom::inspect {

// Numbers under a name that the page looks them up by, in zlib's format, little-endian. Letters: T tokens, H attention
// matrices of a layer, n contributions kept of a token, k tokens kept of a prediction, E experts, K chosen. l is a
// layer.
//   thumbnails           uint8 [layers, H, side, side]: thumbnail()
//   map.l.h, before.l.h  pack_map() of the weights, and of those before heads compose
//   contributions.l      uint16 [T, n] source, head, value expert, output expert (65535: none); float16 [T, n] size, as
//   a
//                        share of the output's length; of each split float16 [T, n, terms]; float32 [T] length of the
//                        output, error of the sum, size of the bias, size of all others; float32 [T, H] by head; of
//                        each split float32 [T, terms] of the whole output; float16 [T, n, terms] terms of the scores
//   select.l, select_in.l, select_out.l  uint16 [T, heads, K] which, float16 [T, heads, K] their weights
//   predictions          int32 [T, k] tokens, float32 [T, k] probabilities; float32 [T] of the next token, int32 [T]
//   its
//                        rank; float32 [T] entropy in nats
//   logits               of the next token's logit and the likeliest's, float32 [2, T, 3 + layers (H + 2)]: the logit;
//                        what the embedding and the constants add; of each layer its heads, its bias, its MLP
//   logit_experts.l      float16 [2, T, H, value experts + output experts] what each adds
//   changes              float32 [T] divergence in nats; int32 [T, k] tokens; float32 [T, k] before and after
struct Packed {
  std::string name;
  std::string bytes;
};

struct InspectedText {
  Json about;  // sizes, names, settings: what the packed numbers mean
  std::vector<Packed> packed;
  std::vector<std::int64_t> vocabulary;  // ids that occur among the predictions, ascending
};

struct InspectLimits {
  std::int64_t bytes = 14'000'000;       // of all that is packed, about
  std::int64_t most_contributions = 32;  // of each token in each layer, the largest; fewer where they would not fit
  bool tells = true;                     // how far it is
};

// Throws UserError for models other than language models and classifiers of single texts.
void require_inspectable(const config::ModelOptions& options);
// What context.observer makes of a value is what is used and shown (switched_off.h).
// `model`: as require_inspectable() has it. `ids`: at least one token, at most the model's context_length. Throws
// UserError otherwise. Memory: what one layer keeps of every pair of tokens, some times over.
InspectedText inspect_text(const models::Model& model, const std::vector<std::int32_t>& ids, const nn::Context& context,
                           const InspectLimits& limits = {});

// A map [T, T] whose rows hold what a query sees, in about `bytes` compressed bytes. Little-endian, n(i) numbers of a
// row being its values in order: i + 1 where a query sees nothing after its own token (`causal`), else T:
//   int32 levels above 0: float32 [T] scale; all n(i) of all rows, of one byte, or all low bytes and then all high
//   bytes
//     where there are more than 127 levels;
//       p_ij = sign(n) scale_i (n / levels)^2
//   int32 0, where that would be too long: float32 [T] scale; int32 k; of each row's min(k, n(i)) largest values, by
//     their places, first all differences of their places (uint16, the first from 0) and then all numbers of one byte,
//     127 levels; int32 side; float32 scale of the background; numbers of one byte, 127 levels, of each square of
//     side x side values, row by row: the mean of its values that are not among those
std::string pack_map(const at::Tensor& map, std::int64_t bytes, bool causal = true);
// Its largest absolute values in each of side x side squares, as uint8 of 255 sqrt(p) at most 255.
at::Tensor thumbnail(const at::Tensor& map, std::int64_t side);

}  // namespace headroom::inspect
