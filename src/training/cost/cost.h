// What a model costs, computed from its options alone: parameters, and multiply-accumulates (MACs) in two accountings.
//
// Symbols: T context_length (vision: patches), M memory_length, S = M + T source tokens, d d_model, V vocabulary_size;
// those of an attention layer's parts as in config/attention_part.h.
// Counts are exact integers and exist for every config that passes config::check(). All functions throw UserError if a
// count does not fit 63 bits.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "headroom/config/config.h"
#include "headroom/config/model_options.h"

namespace headroom::cost {

// Trainable parameters of the whole model. Every kind has its blocks (two norms each, a decoder's three), an embedding
// (vision: a projection of patches with a bias), a table of learned positions for each stack if configured, and
//   language_model         a norm after the last block; head [d,V], or tied, with its bias; adaptive softmax:
//                          [d,n] and [n] for n cutoffs
//   masked_language_model  norms after the embedding and the last block; head: layer [d,d] with bias, norm, then
//                          as above
//   encoder_decoder        a second embedding with source_vocabulary_size; decoder blocks with a second attention
//                          without relative positions; norms after the last blocks only if norm_position = "pre";
//                          head as above
//   classifier, vision     a norm after the last block; head: [f,d_head_hidden] with bias if configured, then
//                          [.,n_classes]; f = d, for pairs 4d
std::int64_t count_parameters(const config::ModelOptions& model);

// Hidden tensors are the layers' matrices from hidden vectors to hidden vectors: attention's q, k, v and o and the
// MLPs', banks of experts included. train.optimizer = "muon" applies to these.
struct ParameterTensor {
  std::int64_t elements = 0;
  bool hidden = false;
};
// All parameter tensors, in no particular order.
std::vector<ParameterTensor> parameter_tensors(const config::ModelOptions& model);

// Elements of the hidden tensors.
std::int64_t count_hidden_matrices(const config::ModelOptions& model);

// "Paper accounting" of the SwitchHead papers (SwitchHead, Eq. 11-15, as their printed tables were computed): one
// attention layer, one sequence, C = S / T chunks of context. Memory is the number of elements that the backward pass
// needs. A layer is the sum of its parts; paper() in src/foundation/config/attention/ has the terms of each, and where
// the tables differ from the equations. What those papers lack (gated heads, mixtures, linear attention, compositions)
// is counted by the same rules. Windows do not lower these counts.
struct PaperCost {
  std::int64_t attention_macs = 0;
  std::int64_t attention_memory = 0;
};
PaperCost paper_cost(const config::ModelOptions& model);

// "Executed accounting": the MACs of the matrix multiplications that the reference layers execute, forward, over all
// layers, for one sequence of T tokens with full memory. products() in src/foundation/config/attention/ has those of
// each part of an attention layer; masked entries count. Relative positions are projected once for a whole batch, and
// for each sequence of its pairs. mlp: 2 or 3 (gated) products; experts: router and top_k experts. head: T d (V +
// clusters of an adaptive softmax), as if every token used every cluster; masked language models T d d more;
// classifiers their layers, and the projection of patches. An encoder_decoder processes T source and T target tokens, a
// paired classifier two sequences. Not counted: norms, softmax, gates, rotations, biases, look-ups, optimizer.
struct ExecutedCost {
  std::int64_t attention_macs = 0;  // of one sequence alone, positions included
  std::int64_t mlp_macs = 0;        // of one sequence
  std::int64_t head_macs = 0;       // of one sequence
  // A training step of `batch` sequences: three times the forward MACs, noise included; a masked language model's head
  // counts for the fraction of tokens that is hidden.
  std::int64_t step_macs = 0;
};
// Throws UserError for batch < 1.
ExecutedCost executed_cost(const config::ModelOptions& model, std::int64_t batch);

// Floating-point operations of a training step (twice step_macs), and of all train.steps. Nothing for models that read
// sentences of different lengths, because their batches differ in size.
std::optional<double> step_flops(const config::Config& config);
std::optional<double> training_flops(const config::Config& config);

}  // namespace headroom::cost
