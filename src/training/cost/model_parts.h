// Lists the layers of each kind of model, and sums the costs of an attention layer over its parts
// (config/attention_part.h).
#pragma once

#include <vector>

#include "headroom/config/attention_part.h"
#include "headroom/config/model_options.h"

namespace headroom::cost {

// Identical blocks of one stack, wherever they are in it.
struct Stack {
  Exact layers = 0;
  Exact distinct = 0;                          // layers with their own parameters
  Exact tokens = 0;                            // tokens per sequence that a layer reads
  std::vector<config::AttentionExtent> spans;  // one per attention layer of a block
  std::vector<config::AttentionOptions> attentions;
  config::MlpOptions mlp;
  Exact norms = 0;  // per block
};

// Returns the kinds of blocks of the model: of its encoder, its decoder, or both.
std::vector<Stack> stacks_of(const config::ModelOptions& model);

// Returns the number of norms outside the blocks.
Exact outer_norms(const config::ModelOptions& model);

// Returns the number of sequences per example: 2 if a classifier compares a pair, else 1.
inline std::int64_t sequences_of(const config::ModelOptions& model) {
  return model.paired ? 2 : 1;
}

// Returns the number of tokens per sequence (vision: patches per image).
Exact tokens_of(const config::ModelOptions& model);

// Returns the number of values per image patch.
Exact patch_elements(const config::ModelOptions& model);

// Returns the input width of a classifier head: one vector; for a pair, both vectors, their product and their
// difference.
inline Exact features_of(const config::ModelOptions& model) {
  return Exact(model.d_model) * (model.paired ? 4 : 1);
}

// An MLP, by kind.
struct MlpParts {
  Sizes matrices;
  Sizes others;     // biases, or the router
  Exact macs = 0;   // per token
  Exact saved = 0;  // elements per token that the backward pass needs (step_memory())
};
MlpParts mlp_parts(const config::MlpOptions& mlp, Exact d_model);

// Multiply-accumulates of the matrix multiplications in an attention layer's forward pass (reference operators).
struct AttentionProducts {
  Exact projections = 0;  // q, k, v, o
  Exact gates = 0;        // gates on the head outputs, forget gates
  Exact selection = 0;    // routing scores of experts or heads
  Exact scores = 0;       // queries x keys, queries x offsets, weights x values; score = linear: x state
  Exact composition = 0;  // factors per token, and mixing across heads
  Exact positions = 0;    // relative positions, projected once per batch
  Exact noise = 0;        // noisy_routing; only in training
};
AttentionProducts attention_products(const config::AttentionOptions& attention, Exact d_model,
                                     const config::AttentionExtent& span);

// Returns how many of these multiply-accumulates (scores and composition) belong to pairs of a query and a key that the
// causal mask or the window hides. Padding is not counted as hidden.
Exact masked_macs(const config::AttentionOptions& attention, Exact d_model, const config::AttentionExtent& span);

// Returns the cost of the gate on the head outputs in paper accounting. MACs: d_model (gate_channels) per gate, and
// one per gated value. Memory: the gates and the ungated head outputs.
config::PaperTerms paper_output_gate(const config::AttentionOptions& attention, const config::PaperSizes& sizes);

// Returns the number of trainable parameters of one attention layer. `sources`: number of key positions; some priors
// have one parameter per position.
Exact attention_parameters(const config::AttentionOptions& attention, Exact d_model, Exact sources);
// Returns the sizes of the layer's tensors, except for the matrices of the projection.
Sizes other_attention_tensors(const config::AttentionOptions& attention, Exact d_model, Exact sources);

}  // namespace headroom::cost
