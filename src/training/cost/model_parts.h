// The layers of a model of each kind, and what one attention layer costs: its parts' own counts
// (config/attention_part.h), added up.
#pragma once

#include <vector>

#include "headroom/config/attention_part.h"
#include "headroom/config/model_options.h"

namespace headroom::cost {

// Equal blocks, one after the other.
struct Stack {
  Exact layers = 0;
  Exact tokens = 0;                            // read by a layer, of one sequence
  std::vector<config::AttentionExtent> spans;  // of the attention layers of one block
  std::vector<config::AttentionOptions> attentions;
  Exact norms = 0;  // of one block
};

// The encoder, the decoder, or both.
std::vector<Stack> stacks_of(const config::ModelOptions& model);

// The number of norms outside the blocks.
Exact outer_norms(const config::ModelOptions& model);

// Sequences of one example: two if a classifier compares a pair.
inline std::int64_t sequences_of(const config::ModelOptions& model) {
  return model.paired ? 2 : 1;
}

// Tokens of one sequence; the patches of an image.
Exact tokens_of(const config::ModelOptions& model);

// Values of one patch of an image.
Exact patch_elements(const config::ModelOptions& model);

// The width of a classifier head's input: one vector; for a pair, both vectors, their product and their difference.
inline Exact features_of(const config::ModelOptions& model) {
  return Exact(model.d_model) * (model.paired ? 4 : 1);
}

// Multiply-accumulates of the matrix multiplications of an attention layer's reference operators, forward.
struct AttentionProducts {
  Exact projections = 0;  // q, k, v, o
  Exact gates = 0;        // of the head outputs
  Exact selection = 0;    // routing scores of experts or heads
  Exact scores = 0;       // queries with keys and with offsets, weights with values; score = linear: with the state
  Exact composition = 0;  // the factors of each token, and heads with heads
  Exact positions = 0;    // relative positions, projected once for a whole batch
  Exact noise = 0;        // noisy_routing; only in training
};
AttentionProducts attention_products(const config::AttentionOptions& attention, Exact d_model,
                                     const config::AttentionExtent& span);

// What the gate on the head outputs adds to the papers' accounting. MACs: d_model for each gate, and one for each value
// that it multiplies. Memory: the gates and the head outputs before them.
config::PaperTerms paper_output_gate(const config::AttentionOptions& attention, const config::PaperSizes& sizes);

// Trainable parameters of one attention layer. `sources`: key positions, of which some priors have one parameter each.
Exact attention_parameters(const config::AttentionOptions& attention, Exact d_model, Exact sources);
// The sizes of its tensors except for the projection's matrices.
Sizes other_attention_tensors(const config::AttentionOptions& attention, Exact d_model, Exact sources);

}  // namespace headroom::cost
