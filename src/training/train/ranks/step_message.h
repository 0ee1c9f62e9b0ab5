// The message that ranks exchange once per step, and its reduction in an order independent of the number of ranks.
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
  std::vector<double> squares;     // of the reduced gradients of the owned shards: see gradient_norm()
  std::vector<bool> has_gradient;  // by parameter: true if any micro-batch of this rank has one
  bool stop = false;
  // Only in verified steps: hashes of the gradients of this rank's first range, and of the next rank's first range,
  // which this rank recomputes.
  std::string own_hash, next_hash;
};

// Lossless serialisation. from_text() leaves BufferUpdate::buffer undefined; it throws Error if the text is truncated.
std::string to_text(const StepMessage& message);
StepMessage from_text(const std::string& text);

// The first rank whose hash of the next rank's range differs from that rank's own hash; nullopt if all agree.
std::optional<int> disagreement(const std::vector<StepMessage>& all);

// Returns the losses and buffer updates in the order of the micro-batches; the gradient norm and the memory are left
// empty. `buffers`: the model's buffers by name, to which the updates refer.
ReducedStep reduce_reports(std::vector<StepMessage>& all, std::int64_t micro_batches,
                           const std::map<std::string, at::Tensor>& buffers);

// The norm of the whole gradient: sums the squares of all shards in the order of the parameters. An uncut tensor has
// one value, a cut tensor one per block of ops::kSquareBlock elements.
double gradient_norm(const std::vector<StepMessage>& all, const Layout& layout);

}  // namespace headroom::train
