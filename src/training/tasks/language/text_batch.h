// Tokens of a batch as a language model takes them.
#pragma once

#include "data/tokens/batches.h"
#include "headroom/models/model.h"

namespace headroom::tasks {

// "tokens" [batch, length + 1] int64, on the CPU.
models::Batch to_batch(const data::TokenBatch& batch);

// EvaluationData::rows of a text: its chunks, of which a model with memory reads up to a fifth twice.
double text_rows(const data::TokenFile& tokens, const config::Config& config);

}  // namespace headroom::tasks
