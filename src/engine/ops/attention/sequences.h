// Attention of sequences that have keys of their own, one query each.
#pragma once

#include "engine/ops/backend.h"
#include "headroom/ops/attention.h"

namespace headroom::ops {

// in.sequences is not empty. Throws Error on shapes that do not fit.
at::Tensor attention_of_sequences(const AttentionInputs& in, Implementation implementation);

// Backends that take all sequences in one call; without one, each is a call of its own.
Backends<AttentionInputs>& attention_sequences_backends();

}  // namespace headroom::ops
