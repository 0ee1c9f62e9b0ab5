// What a model costs, from its options alone: parameters, and multiply-accumulates (MACs) counted in two ways.
//
// Symbols: T context_length (vision: patches), M memory_length, S = M + T source tokens, d d_model, L n_layers,
// H n_heads, G key/value heads (routed heads: 1), e d_head, E n_experts, k top_k, n_sel selection matrices, R keys at a
// position (n_mixtures, 1 for the dot product), V vocabulary_size.
// Every count is an exact integer, and there is one for every config that passes config::check(). All functions throw
// MisuseError when a count does not fit 63 bits.
#pragma once

#include <cstdint>

#include "headroom/config/model_options.h"

namespace headroom::cost {

// Trained numbers of the whole model. Every kind has its blocks (two norms each, a decoder's three), an embedding
// (vision: a projection of patches with a bias), a table of learned positions for each stack if there is one, and
//   language_model         a norm behind the last block; head [d,V], or tied, with its bias; adaptive softmax:
//                          [d,n] and [n] for n cutoffs
//   masked_language_model  norms behind the embedding and the last block; head: layer [d,d] with bias, norm, then
//                          as above
//   encoder_decoder        one embedding; decoder blocks with a second attention, which has no relative positions;
//                          norms behind the last blocks only if norm_position = "pre"; head as above
//   classifier, vision     a norm behind the last block; head: [f,d_head_hidden] with bias if asked for, then
//                          [.,n_classes]; f = d, for pairs 4d
std::int64_t count_parameters(const config::ModelOptions& model);

// "Paper accounting" of the SwitchHead papers (SwitchHead, Eq. 11-15, as their printed tables were computed): one
// attention layer, one sequence, C = S / T chunks of context. Memory is the count of numbers that the backward
// pass needs. Terms marked [XL] only with relative positions.
//   dense         MACs 2CT^2He + 2(H + G)Tde + [XL] 2CTdHe
//                 mem  2CT^2H  + 2(H + G)Te  + [XL] 2CTHe
//   experts       MACs 2CT^2He + sum over q,k,v,o of (k if experts else 1) dHeT + n_exp HkTe + n_sel EdTC + [XL] 2HdTe
//                 mem  2CT^2H  + 2(H + G)Te + n_sel ETC + [XL] 2HTe
//   routed_heads  MACs 2CT^2He + (2H + 2)deT + 2HTe + EdT + [XL] 2CdTe
//                 mem  2CT^2H  + (2H + 2)eT + CET + [XL] 2Te
// (k and v count with G heads.) The selection term has no H and the experts' position term no C: so were the
// tables made; Eq. 13 differs. Experts in none of q, k, v, o count as dense. Windows do not lower these numbers.
//
// What those papers do not have is counted in the same spirit:
//   gated_heads       dense + HdT and HTe MACs, HT numbers: the gate and the weighing
//   gaussian_mixture  R score matrices: (R + 1)CT^2He for 2CT^2He, (R + 1)CT^2H numbers; own keys: R key projections
//   for
//                     one; all R keys of a position are kept, shifted ones as well
//   linear            (C + 1)THe^2 for 2CT^2He; features and state, (C + 1)THe + He^2, for 2CT^2H numbers; keys as
//   above composition       each stage: one matrix more, CT^2H numbers; static map CT^2Hm (m = H / groups); low rank, a
//   side:
//                     2 rank CT^2H, and rank groups CT^2 numbers; the factors of T (query) or CT (key side) tokens:
//                     dI groups + 2 rank I H (I = 2 rank m) and (I groups + 2 rank H) numbers each; gates dH and H
struct PaperCost {
  std::int64_t attention_macs = 0;
  std::int64_t attention_memory = 0;
};
PaperCost paper_cost(const config::ModelOptions& model);

// "Executed accounting": the MACs of the matrix products that the reference layers really carry out, forward, over
// all layers, for one sequence of T tokens whose memory is full. Per attention layer:
//   q, o            k or 1 expert: T d e a head; routed heads: the chosen H of E
//   k, v            k or 1 expert: S d e a key/value head, memory tokens included; own mixture keys: R times
//   scores, values  T S e a head each, invisible entries included; a mixture scores R times
//   q.r             T C e a head, relative positions only: C = S offsets, S + T - 1 in layers that are not causal
//   linear          causal, chunks of t <= 64 queries: 2 t t e inside, t e e from the state (none before the first
//                   chunk without memory) a head; t e e into it a key/value head (not the last chunk's); memory: M e e.
//                   Not causal: T e e a head and S e e a key/value head
//   positions       C d e a head (routed heads: one); once for a whole batch, for each sequence of its pairs
//   selection       d E a head and token: source side S tokens, destination side T; shared: each token once; routed
//                   heads d E, gated heads d H for each of T tokens
//   composition     a stage: static map T S H m; low rank, a side: 2 rank T S H; factors as in paper_cost(), for T
//                   tokens on the query side and S on the key side; gates only their factors
// mlp: 2 or 3 (gated) products, experts: router and k experts. head: T d (V + classes of an adaptive softmax), as if
// every token asked for every class; masked language models T d d more; classifiers their layers, and the patches'
// projection. An encoder_decoder runs T source and T target tokens, a paired classifier two sequences. Not counted:
// norms, softmax, gates, rotations, biases, look-ups, optimizer.
struct ExecutedCost {
  std::int64_t attention_macs = 0;  // one sequence by itself, positions in full
  std::int64_t mlp_macs = 0;        // one sequence
  std::int64_t head_macs = 0;       // one sequence
  std::int64_t step_macs = 0;       // a training step of `batch` sequences: three times the products, noise included
};
// Throws MisuseError for batch < 1.
ExecutedCost executed_cost(const config::ModelOptions& model, std::int64_t batch);

}  // namespace headroom::cost
