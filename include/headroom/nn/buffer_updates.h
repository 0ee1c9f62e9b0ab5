// Buffers that a batch changes (soft-E priors): a forward pass reports what it measured, and the step that knows the
// whole batch writes it, so that the batch's parts, in whatever order, give what the batch gives.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <string>

namespace headroom::nn {

// buffer <- sum / (count + epsilon) where count > 0; other places stay.
struct BufferUpdate {
  at::Tensor buffer;
  at::Tensor sum;    // of the buffer's shape
  at::Tensor count;  // broadcasts to it
  double epsilon = 0.0;
};

using BufferUpdates = std::map<std::string, BufferUpdate>;  // by the buffer's name

// Adds what a part of the batch measured.
void report(BufferUpdates& updates, const std::string& name, const BufferUpdate& update);

// Writes the buffers, once after the batch.
void apply(const BufferUpdates& updates);

}  // namespace headroom::nn
