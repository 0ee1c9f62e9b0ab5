// The memory that training and decoding need, computed from the config alone.
#pragma once

#include <cstdint>

#include "headroom/config/config.h"

namespace headroom::cost {

// Bytes that a training step needs at least; float32 unless said otherwise. A real step needs more: blocks of logits
// and attention weights, temporary tensors, the program itself (some 150 MiB), parts of the token file, and everything
// that the reference operators save are left out.
struct StepMemory {
  std::int64_t parameters = 0;
  std::int64_t gradients = 0;
  std::int64_t moments = 0;  // of the optimizer
  // What fused operators save for the backward pass of one micro-batch (train.batch_size / train.accumulate sequences):
  // each norm's input and result; queries, keys, values and head outputs; the MLP's hidden layer before and after its
  // activation (relu: after; gated: its three products and their factor). With precision = "bf16", operands of matrix
  // multiplications have 2 bytes, and there is a copy of the matrices in that type. Also the Transformer-XL memory of
  // the last chunk and of this one, for all sequences.
  std::int64_t activations = 0;
  std::int64_t carried = 0;  // of those, the Transformer-XL memory
  // parameters + moments + the larger of gradients and activations, because gradients appear while activations are
  // freed; with train.accumulate > 1 the sum of all, because gradients wait for the next micro-batch.
  std::int64_t total = 0;
};

// Throws UserError if a count does not fit 63 bits. precision = "auto" counts as fp32.
StepMemory step_memory(const config::Config& config);

// Elements of one sequence's cache when it is full, over all layers. Symbols as in cost.h.
//
// A layer caches M + T tokens; a local layer at most its window. For each token it stores G e elements for every key
// projection (shifted keys: the one from which they are shifted), G e for the value, and the composition's
// cache_elements() (config/attention_part.h). Without memory, a score with a constant-size state stores its
// state_elements() instead. The decoder of an encoder_decoder also stores keys and values of the source sequence. 0 for
// kinds that do not generate. Throws UserError if the count does not fit 63 bits.
std::int64_t decoding_cache_elements(const config::ModelOptions& model);

}  // namespace headroom::cost
