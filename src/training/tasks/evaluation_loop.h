// The evaluation loop: evaluates batches one by one, and adds their sums in order over all ranks.
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

struct BatchEvaluation {
  std::function<Sums()> sums;  // evaluates the batch; called only on the ranks to which it is assigned
  std::int64_t done = 0;       // progress up to and including this batch, in LoopOptions::unit
};

struct LoopOptions {
  std::string unit;
  std::int64_t units = 0;  // of all batches
  bool shows_loss = true;
  bool independent = true;  // batches can be evaluated in any order
};

// Calls `next`, without gradients and with the context for evaluation, until it returns nullopt or the user presses
// Ctrl-C. With several ranks, rank r evaluates batches r, r + N, ... if they are independent; otherwise every rank
// evaluates all batches.
Evaluation run_evaluation(const EvaluateOptions& options, const LoopOptions& loop,
                          const std::function<std::optional<BatchEvaluation>(const nn::Context& context)>& next);

// Returns the sums of the model's losses on a CPU batch with this number of predictions.
Sums cross_entropy(const models::Model& model, const models::Batch& batch, std::int64_t predictions,
                   models::Memory& memory, const nn::Context& context);

// Returns the sums of the cross-entropies (in nats, on any device) and of their squares.
Sums sums_of_losses(const at::Tensor& losses);

// ProcessGroup::gather() of JSON values. `what` names the operation in errors.
std::vector<Json> gather(ProcessGroup& group, const Json& mine, std::string_view what);

}  // namespace headroom::tasks
