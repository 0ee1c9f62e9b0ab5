// The loop that all evaluations share: batch after batch is measured and added up, in order.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "task.h"

namespace headroom::tasks {

// What a batch adds, measured only if asked for, and how far the pass has come with it, in the units of its progress
// bar.
struct Measured {
  std::function<Sums()> sums;
  std::int64_t done = 0;
};

struct Pass {
  std::string unit;
  std::int64_t units = 0;  // of all batches
  bool shows_loss = true;
  bool independent = true;  // batches: each can be measured without those before it
};

// Calls `next`, without gradients and with the context to evaluate in, until it returns nothing or Ctrl-C. Of several
// processes each measures every Nth batch, where they are independent.
Evaluation add_up(const EvaluateOptions& options, const Pass& pass,
                  const std::function<std::optional<Measured>(const nn::Context& context)>& next);

// What `model` loses on a batch that is on the CPU: a sum over its predictions.
Sums cross_entropy(const models::Model& model, const models::Batch& batch, std::int64_t predictions,
                   models::Memory& memory, const nn::Context& context);

// Of the cross-entropies of predictions, in nats, on any device: their sum and that of their squares.
Sums sums_of_losses(const at::Tensor& losses);

}  // namespace headroom::tasks
