// The loop of all evaluations: batches are measured one by one, and their sums are added in order, over all ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/core/json.h"
#include "task.h"

namespace headroom::tasks {

// A batch of an evaluation.
struct BatchEvaluation {
  std::function<Sums()> sums;  // evaluates the batch; not called on ranks to which it is not assigned
  std::int64_t done = 0;       // units of the progress bar, up to and including this batch
};

struct LoopOptions {
  std::string unit;
  std::int64_t units = 0;  // of all batches
  bool shows_loss = true;
  bool independent = true;  // a batch can be evaluated without those before it
};

// Calls `next`, without gradients and with the context for evaluation, until it returns nothing or Ctrl-C. With several
// ranks, rank r evaluates batches r, r + N, ... if they are independent, else every rank evaluates all.
Evaluation run_evaluation(const EvaluateOptions& options, const LoopOptions& loop,
                          const std::function<std::optional<BatchEvaluation>(const nn::Context& context)>& next);

// The model's losses on a batch (on the CPU) with this number of predictions.
Sums cross_entropy(const models::Model& model, const models::Batch& batch, std::int64_t predictions,
                   models::Memory& memory, const nn::Context& context);

// The sums of cross-entropies (in nats, on any device) and of their squares.
Sums sums_of_losses(const at::Tensor& losses);

// ProcessGroup::gather() of JSON values. `what` names the operation in errors.
std::vector<Json> gather(ProcessGroup& group, const Json& mine, std::string_view what);

}  // namespace headroom::tasks
