// Computes the memory required for training and decoding from the config alone.
#pragma once

#include <cstdint>

#include "headroom/config/config.h"

namespace headroom::cost {

// A lower bound on the memory of a training step, in bytes. Tensors are float32 unless stated otherwise. Not counted:
// blocks of logits and attention weights, temporary tensors, the program itself (about 150 MiB), parts of the token
// file, and everything that the reference operators save.
struct StepMemory {
  std::int64_t parameters = 0;
  std::int64_t gradients = 0;
  std::int64_t moments = 0;  // optimizer state
  // Tensors that fused operators save for the backward pass of one micro-batch (train.batch_size / train.accumulate
  // sequences): each norm's input and result; queries, keys, values and head outputs; the MLP's hidden layer before and
  // after its activation (relu: after; gated: the gate before and after its activation, the other projection, and their
  // product). With precision = "bf16", operands of matrix multiplications take 2 bytes per element, and bf16 copies of
  // the matrices are included. Also includes the Transformer-XL memory of the previous and the current chunk, for all
  // sequences.
  std::int64_t activations = 0;
  std::int64_t carried = 0;  // the part of `activations` that is Transformer-XL memory
  // parameters + moments + max(gradients, activations), because activations are freed as gradients are allocated. With
  // train.accumulate > 1 it is the sum of all four, because gradients persist across micro-batches.
  std::int64_t total = 0;
};

// Throws UserError if a count does not fit 63 bits. precision = "auto" counts as fp32.
StepMemory step_memory(const config::Config& config);

// Returns the number of elements in the full KV cache of one sequence, over all layers. Symbols are defined in cost.h.
//
// A layer caches M + T tokens; a local layer at most its window. For each token it stores G e elements per key
// projection (shifted keys: only the projection from which they are shifted), G e for the value, and the composition's
// cache_elements() (config/attention_part.h). Without memory, a score with a constant-size state stores its
// state_elements() instead. The decoder of an encoder_decoder also stores keys and values of the source sequence.
// Returns 0 for kinds of models that do not generate. Throws UserError if the count does not fit 63 bits.
std::int64_t decoding_cache_elements(const config::ModelOptions& model);

}  // namespace headroom::cost
