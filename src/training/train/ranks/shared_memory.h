// A model's memory where several processes compute the rows of a batch: each carries that of its own rows.
#pragma once

#include <vector>

#include "exchange.h"
#include "headroom/models/model.h"
#include "training/parallel/gloo_group.h"

namespace headroom::train {

// The rows that a process with these parts computes, out of all rows of a batch in `accumulate` micro-batches.
models::Memory own_rows(const models::Memory& all, const std::vector<Part>& parts, std::int64_t accumulate);

// The other way round: layer l, of all rows, in process l mod N, and its shape without memory in the others.
// Every process calls it with what it carries.
models::Memory spread_layers(const models::Memory& own, const config::TrainOptions& options,
                             parallel::GlooGroup& world);

}  // namespace headroom::train
