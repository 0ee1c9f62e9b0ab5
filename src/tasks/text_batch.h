// Tokens of a batch as a language model takes them.
#pragma once

#include "headroom/data/batches.h"
#include "headroom/models/model.h"

namespace headroom::tasks {

// "tokens" [batch, length + 1] int64, on the CPU.
models::Batch to_batch(const data::TokenBatch& batch);

}  // namespace headroom::tasks
