// How many attention layers, MLPs and norms a model of each kind has, and how many tokens they read.
#pragma once

#include <vector>

#include "attention_parts.h"
#include "headroom/config/model_options.h"

namespace headroom::cost {

// Equal layers, one after the other.
struct Stack {
  Exact layers = 0;
  Exact tokens = 0;                    // that the layers read of one sequence
  std::vector<AttentionExtent> spans;  // the attention layers of one block
  std::vector<config::AttentionOptions> attentions;
  Exact norms = 0;  // of one block
};

// The encoder, the decoder, or both.
std::vector<Stack> stacks_of(const config::ModelOptions& model);

// Norms outside the blocks.
Exact outer_norms(const config::ModelOptions& model);

// Sequences that make one example: two where a classifier compares a pair.
inline std::int64_t sequences_of(const config::ModelOptions& model) {
  return model.paired ? 2 : 1;
}

// Tokens of one sequence: for pictures their patches.
Exact tokens_of(const config::ModelOptions& model);

// Numbers of one patch of a picture.
Exact patch_numbers(const config::ModelOptions& model);

// What a classifier's head reads: one vector, or those of a pair, their product and their difference.
inline Exact features_of(const config::ModelOptions& model) {
  return Exact(model.d_model) * (model.paired ? 4 : 1);
}

}  // namespace headroom::cost
