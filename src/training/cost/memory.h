// The memory that a training step needs, from the config alone.
#pragma once

#include <cstdint>

#include "headroom/config/config.h"

namespace headroom::cost {

// Bytes that the step needs at least, float32 unless said otherwise: no step here keeps less, and
// what is left out makes the real one larger: blocks of logits and of attention weights, temporary tensors, the program
// itself (some 150 MiB), parts of the token file, and everything that the plain reference operators keep.
struct StepMemory {
  std::int64_t parameters = 0;
  std::int64_t gradients = 0;
  std::int64_t moments = 0;  // of the optimizer
  // What the backward pass of one micro-batch (train.batch_size / train.accumulate sequences) needs of the forward pass
  // with fused operators: each norm's input and result; queries, keys, values and the heads' results; the MLP's hidden
  // layer, before and after its activation (relu: after; gated: its three products and their factor); with
  // precision = "bf16" what products read at 2 bytes, and a copy of the matrices in that type. The carried memory of
  // the last chunk and of this one, for all sequences.
  std::int64_t activations = 0;
  std::int64_t carried = 0;  // of those, the memory
  // Gradients appear while activations are freed: parameters + moments + the larger of the two; with train.accumulate >
  // 1, whose gradients wait for the next micro-batch, the sum of all.
  std::int64_t total = 0;
};

// Throws UserError when a count does not fit 63 bits. precision = "auto" counts as fp32.
StepMemory step_memory(const config::Config& config);

}  // namespace headroom::cost
