// The evaluation loop: evaluates batches one by one, and adds their sums in order over all ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/core/json.h"
#include "task.h"

namespace headroom::tasks {

struct EvaluationLoop {
  std::string unit;
  std::int64_t units = 0;  // of all batches
  // Returns the end of the batch that begins at this unit. Called for every batch, on all ranks. If not set: batches of
  // EvaluateOptions::batch_size units.
  std::function<std::int64_t(std::int64_t begin)> end_of = {};
  // Evaluates units [begin, end); called only on the ranks to which the batch is assigned.
  std::function<Sums(std::int64_t begin, std::int64_t end, const nn::Context& context)> evaluate;
  bool shows_loss = true;
  bool independent = true;  // batches can be evaluated in any order
};

// Evaluates all batches, without gradients and with the context for evaluation, until the user presses Ctrl-C. With
// several ranks, rank r evaluates batches r, r + N, ... if they are independent; otherwise every rank evaluates all.
Evaluation run_evaluation(const EvaluateOptions& options, const EvaluationLoop& loop);

// Returns the sums of the model's losses on a CPU batch with this number of predictions.
Sums cross_entropy(const models::Model& model, const models::Batch& batch, std::int64_t predictions,
                   models::Memory& memory, const nn::Context& context);

// Returns the sums of the cross-entropies (in nats, on any device) and of their squares.
Sums sums_of_losses(const at::Tensor& losses);

// ProcessGroup::gather() of JSON values. `what` names the operation in errors.
std::vector<Json> gather(ProcessGroup& group, const Json& mine, std::string_view what);

}  // namespace headroom::tasks
