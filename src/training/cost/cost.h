// What a model costs, from its options alone: parameters, and multiply-accumulates (MACs) counted in two ways.
//
// Symbols: T context_length (vision: patches), M memory_length, S = M + T source tokens, d d_model, V vocabulary_size;
// those of an attention layer's parts as in config/attention_part.h.
// Every count is an exact integer, and there is one for every config that passes config::check(). All functions throw
// UserError when a count does not fit 63 bits.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "headroom/config/config.h"
#include "headroom/config/model_options.h"

namespace headroom::cost {

// Trained numbers of the whole model. Every kind has its blocks (two norms each, a decoder's three), an embedding
// (vision: a projection of patches with a bias), a table of learned positions for each stack if there is one, and
//   language_model         a norm after the last block; head [d,V], or tied, with its bias; adaptive softmax:
//                          [d,n] and [n] for n cutoffs
//   masked_language_model  norms after the embedding and the last block; head: layer [d,d] with bias, norm, then
//                          as above
//   encoder_decoder        a second embedding with source_vocabulary_size; decoder blocks with a second attention
//                          without relative positions; norms after the last blocks only if norm_position = "pre";
//                          head as above
//   classifier, vision     a norm after the last block; head: [f,d_head_hidden] with bias if asked for, then
//                          [.,n_classes]; f = d, for pairs 4d
std::int64_t count_parameters(const config::ModelOptions& model);

// One of the tensors that they are in. Hidden are the layers' matrices from hidden vectors to hidden vectors:
// attention's q, k, v and o and the MLPs', banks of experts included; what train.optimizer = "muon" moves itself.
struct ParameterTensor {
  std::int64_t numbers = 0;
  bool hidden = false;
};
// All of them, in no particular order.
std::vector<ParameterTensor> parameter_tensors(const config::ModelOptions& model);

// Numbers in the hidden ones.
std::int64_t count_hidden_matrices(const config::ModelOptions& model);

// "Paper accounting" of the SwitchHead papers (SwitchHead, Eq. 11-15, as their printed tables were computed): one
// attention layer, one sequence, C = S / T chunks of context. Memory is the count of numbers that the backward
// pass needs. A layer is the sum of its parts; each says its terms, and where the tables were made otherwise than the
// equations say, at paper() in src/foundation/config/attention/. What those papers do not have (gated heads, mixtures,
// linear attention, compositions) is counted in the same spirit. Windows do not lower these numbers.
struct PaperCost {
  std::int64_t attention_macs = 0;
  std::int64_t attention_memory = 0;
};
PaperCost paper_cost(const config::ModelOptions& model);

// "Executed accounting": the MACs of the matrix products that the reference layers really execute, forward, over
// all layers, for one sequence of T tokens whose memory is full. Each part of an attention layer says its products at
// products() in src/foundation/config/attention/; invisible entries are included. Relative positions are projected once
// for a whole batch, and for each sequence of its pairs. mlp: 2 or 3 (gated) products, experts: router and k experts.
// head: T d (V + classes of an adaptive softmax), as if every token asked for every class; masked language models T d d
// more; classifiers their layers, and the patches' projection. An encoder_decoder runs T source and T target tokens, a
// paired classifier two sequences. Not counted: norms, softmax, gates, rotations, biases, look-ups, optimizer.
struct ExecutedCost {
  std::int64_t attention_macs = 0;  // one sequence by itself, positions in full
  std::int64_t mlp_macs = 0;        // one sequence
  std::int64_t head_macs = 0;       // one sequence
  // A training step of `batch` sequences: three times the products, noise included, those of a masked language model's
  // head for the share of tokens that is hidden.
  std::int64_t step_macs = 0;
};
// Throws UserError for batch < 1.
ExecutedCost executed_cost(const config::ModelOptions& model, std::int64_t batch);

// Floating-point operations of a training step's products, two for each of its multiply-accumulates (step_macs), and of
// all train.steps. Nothing for models that read sentences of different lengths, whose batches differ in what they hold.
std::optional<double> step_flops(const config::Config& config);
std::optional<double> training_flops(const config::Config& config);

}  // namespace headroom::cost
