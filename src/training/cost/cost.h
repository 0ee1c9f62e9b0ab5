// Computes the cost of a model without its data: parameters, multiply-accumulates (MACs) by two accounting methods, and
// the memory of training and decoding. Parameters, executed MACs and cached elements are counted from the layers
// (count.h).
//
// Symbols: T context_length (vision: patches), M memory_length, S = M + T source tokens, d d_model, V vocabulary_size;
// the symbols of attention parts are defined in config/attention_part.h. Counts are exact integers, defined for every
// config that passes config::check(). All functions throw UserError if a count does not fit 63 bits.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "headroom/config/config.h"
#include "headroom/config/model_options.h"

namespace headroom::cost {

// Returns the number of trainable parameters.
std::int64_t count_parameters(const config::ModelOptions& model);

// Hidden tensors are the matrices that map hidden vectors to hidden vectors: q, k, v and o of attention layers, and the
// matrices of MLPs, including expert banks. train.optimizer = "muon" applies to these.
struct ParameterTensor {
  std::int64_t elements = 0;
  bool hidden = false;
};
// Returns all parameter tensors, in no particular order.
std::vector<ParameterTensor> parameter_tensors(const config::ModelOptions& model);

// Returns the total number of elements in hidden tensors.
std::int64_t count_hidden_matrices(const config::ModelOptions& model);

// "Paper accounting" follows the SwitchHead papers (SwitchHead, Eq. 11-15, as applied in their printed tables). It
// covers one attention layer and one sequence, with C = S / T chunks of context. Memory is the number of elements that
// the backward pass needs. The cost of a layer is the sum over its parts; paper() in src/foundation/config/attention/
// defines the terms of each part and notes where the tables differ from the equations. Features that the papers lack
// (gated heads, mixtures, linear attention, compositions) are counted by the same rules. Windows do not reduce these
// counts.
struct PaperCost {
  std::int64_t attention_macs = 0;
  std::int64_t attention_memory = 0;
};
PaperCost paper_cost(const config::ModelOptions& model);

// "Executed accounting" counts the MACs of all matrix multiplications in a forward pass of the reference layers, for
// one sequence of T tokens with full memory; masked entries count. Relative positions are projected once per batch
// (paired classifiers: once per sequence of the pair). Experts count as executed: the router and top_k experts. Every
// token uses every cluster of an adaptive softmax. An encoder_decoder processes T source and T target tokens, a paired
// classifier two sequences. Norms, softmax, gates, rotations, biases, look-ups and the optimizer are not counted.
struct ExecutedCost {
  std::int64_t attention_macs = 0;  // per sequence, including positions
  std::int64_t mlp_macs = 0;        // per sequence
  std::int64_t head_macs = 0;       // per sequence
  // MACs per training step of `batch` sequences: three times the forward MACs, including routing noise. The head of a
  // masked language model is counted for hidden tokens only.
  std::int64_t step_macs = 0;
  // step_macs without the pairs of tokens that the causal mask or a window hides: the MACs that a step must compute.
  std::int64_t visible_macs = 0;
};
// Throws UserError for batch < 1.
ExecutedCost executed_cost(const config::ModelOptions& model, std::int64_t batch);

// Return the floating-point operations per training step: twice step_macs, twice visible_macs, and the total over
// train.steps. Return nullopt for models that read sentences of different lengths, because their batch sizes vary.
std::optional<double> step_flops(const config::Config& config);
std::optional<double> visible_step_flops(const config::Config& config);  // twice visible_macs
std::optional<double> training_flops(const config::Config& config);

// A lower bound on the memory of a training step, in bytes. Tensors are float32 unless stated otherwise. Not counted:
// blocks of logits and attention weights, temporary tensors, the program itself (about 150 MiB), parts of the token
// file, and everything that the reference operators save.
struct StepMemory {
  std::int64_t parameters = 0;
  std::int64_t gradients = 0;
  std::int64_t moments = 0;  // optimizer state
  // Tensors that fused operators save for the backward pass of one micro-batch (train.batch_size / train.accumulate
  // sequences): each norm's input and result; queries, keys, values and head outputs; with attention.dropout all
  // attention weights before and after it, since only the reference operator drops weights; the MLP's hidden layer
  // before and after its activation (relu: after; gated: the gate before and after its activation, the other
  // projection, and their product). With precision = "bf16", operands of matrix multiplications take 2 bytes per
  // element, and bf16 copies of the matrices are included. Also includes the Transformer-XL memory of the previous and
  // the current chunk, for all sequences.
  std::int64_t activations = 0;
  std::int64_t carried = 0;  // the part of `activations` that is Transformer-XL memory
  std::int64_t copies = 0;   // the part of `activations` that is bf16 copies of matrices
  // parameters + moments + max(gradients, activations), because activations are freed as gradients are allocated. With
  // train.accumulate > 1 it is the sum of all four, because gradients persist across micro-batches.
  std::int64_t total = 0;
};

// Throws UserError if a count does not fit 63 bits. precision = "auto" counts as fp32.
StepMemory step_memory(const config::Config& config);

// Returns the number of elements in the full KV cache of one sequence, over all layers.
// The decoder of an encoder_decoder also caches the source sequence. Returns 0 for kinds of models that do not
// generate. Throws UserError if the count does not fit 63 bits.
std::int64_t decoding_cache_elements(const config::ModelOptions& model);

}  // namespace headroom::cost
