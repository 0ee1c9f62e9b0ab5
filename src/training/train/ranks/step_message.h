// What ranks exchange once a step, and its reduction in an order that does not depend on the number of ranks.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gradient_reducer.h"
#include "sharding.h"

namespace headroom::train {

struct StepMessage {
  std::vector<MicroBatchReport> reports;
  std::vector<double> squares;     // of the reduced gradients of each owned shard: see gradient_norm()
  std::vector<bool> has_gradient;  // by parameter: in some micro-batch of this rank
  bool stop = false;
  // In a step that is verified: hashes of the gradients of this rank's first range, and of the next rank's.
  std::string own_hash, next_hash;
};

// Exact to the bit. from_text() leaves BufferUpdate::buffer undefined; it throws Error if the text is truncated.
std::string to_text(const StepMessage& message);
StepMessage from_text(const std::string& text);

// The first rank that found other gradients than the next rank for that one's range, if any.
std::optional<int> disagreement(const std::vector<StepMessage>& all);

// The losses and updates in the order of the micro-batches; the gradient norm and the memory are left empty. `buffers`:
// the model's buffers by name, to which the updates belong.
ReducedStep reduce_reports(std::vector<StepMessage>& all, std::int64_t micro_batches,
                           const std::map<std::string, at::Tensor>& buffers);

// Adds the squares of all shards in the order of the parameters. Whole tensors have one value, others one for each
// block of ops::kSquareBlock elements.
double gradient_norm(const std::vector<StepMessage>& all, const Layout& layout);

}  // namespace headroom::train
