// What a model costs, from its options alone: parameters, and multiply-accumulates (MACs) counted in two ways.
//
// Symbols: T context_length, M memory_length, S = M + T source tokens, d d_model, L n_layers, H n_heads,
// Hkv key/value heads, e d_head, E n_experts, k top_k, n_sel selection matrices, V vocabulary_size.
// Every count is an exact integer. All functions throw MisuseError naming the key when an option has no cost
// formula yet (score other than dot, composition other than none, kinds other than language_model) or when a
// count does not fit 63 bits.
#pragma once

#include <cstdint>

#include "headroom/config/model_options.h"

namespace headroom::cost {

// Trained numbers of the whole model.
std::int64_t count_parameters(const config::ModelOptions& model);

// "Paper accounting" of the SwitchHead papers (SwitchHead, Eq. 11-15, as their printed tables were computed): one
// attention layer, one sequence, C = S / T chunks of context. Memory is the count of numbers that the backward
// pass needs. Terms marked [XL] only with relative positions.
//   dense         MACs 2(H + Hkv)Tde + 2CT^2He + [XL] 2CTdHe
//                 mem  2(H + Hkv)Te  + 2CT^2H  + [XL] 2CTHe
//   experts       MACs 2CT^2He + sum over q,k,v,o of (k if experts else 1) dHeT + n_exp HkTe + n_sel EdTC + [XL] 2HdTe
//                 mem  2CT^2H  + 2(H + Hkv)Te + n_sel ETC + [XL] 2HTe
//   routed_heads  MACs 2CT^2He + (2H + 2)deT + 2HTe + EdT + [XL] 2CdTe
//                 mem  2CT^2H  + (2H + 2)eT + CET + [XL] 2Te
// (k and v count with Hkv heads.) The selection term has no H and the experts' position term no C: so were the
// tables made; Eq. 13 differs. Experts in none of q, k, v, o count as dense. Windows do not lower these numbers.
struct PaperCost {
  std::int64_t attention_macs = 0;
  std::int64_t attention_memory = 0;
};
PaperCost paper_cost(const config::ModelOptions& model);

// "Executed accounting": the MACs of the matrix products that the reference layers really carry out, forward, over
// all layers, for one sequence of T tokens whose memory is full. Per attention layer:
//   q, o            k or 1 expert: T d e a head; routed heads: the chosen H of E
//   k, v            k or 1 expert: S d e a key/value head (routed heads: one), memory tokens included
//   scores, values  T S e a head each, invisible entries included
//   q.r             T S e a head, relative positions only
//   positions       S d e a head (routed heads: one) for the S offsets that occur; once for a whole batch
//   selection       d E a head and token: source side S tokens, destination side T; shared: each token once
// mlp: 2 or 3 (gated) products, experts: router and k experts. head: T d V. Not counted: norms, softmax, gates,
// rotations, biases, look-ups, optimizer.
struct ExecutedCost {
  std::int64_t attention_macs = 0;  // one sequence by itself, positions in full
  std::int64_t mlp_macs = 0;        // one sequence
  std::int64_t head_macs = 0;       // one sequence
  std::int64_t step_macs = 0;       // a training step of `batch` sequences: three times the forward products
};
// Throws MisuseError for batch < 1.
ExecutedCost executed_cost(const config::ModelOptions& model, std::int64_t batch);

}  // namespace headroom::cost
