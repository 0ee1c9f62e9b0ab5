// The evaluation loop: evaluates batches one by one, and adds the sums of all ranks in a fixed order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headroom/core/json.h"
#include "task.h"

namespace headroom::tasks {

// Sums of parts of the data, each with the part's position in the data.
using PlacedSums = std::vector<std::pair<std::int64_t, Sums>>;

struct EvaluationLoop {
  std::string unit;
  std::int64_t units = 0;  // in all batches
  // Returns the end of the batch that begins at this unit. Called for every batch, on all ranks. If not set: batches of
  // EvaluateOptions::batch_size units.
  std::function<std::int64_t(std::int64_t begin)> end_of = {};
  // Evaluates units [begin, end); called only on the ranks to which the batch is assigned. Parts are added in the order
  // of their positions, so the sums do not depend on how the parts are divided into batches.
  std::function<PlacedSums(std::int64_t begin, std::int64_t end, const nn::Context& context)> evaluate = {};
  bool shows_loss = true;
  bool independent = true;  // batches can be evaluated in any order
};

// Batches of units that ranks share.
struct BatchLoop {
  std::string title, unit;  // of the progress bar
  std::int64_t units = 0;   // in all batches
  std::function<std::int64_t(std::int64_t begin)> end_of;
  bool distributed = true;  // rank r has batches r, r + N, ...; false: every rank has all batches
};

// Calls work(begin, end) for the batches of this rank; it returns a note for the progress bar. Returns false after
// Ctrl-C.
bool for_each_batch(const EvaluateOptions& options, const BatchLoop& loop,
                    const std::function<std::string(std::int64_t begin, std::int64_t end)>& work);

// Evaluates all batches, without gradients and with the context for evaluation, until the user presses Ctrl-C. With
// several ranks, rank r evaluates batches r, r + N, ... if they are independent; otherwise every rank evaluates all.
Evaluation run_evaluation(const EvaluateOptions& options, const EvaluationLoop& loop);

// The units of an evaluation (rows, examples), which can be read in any order.
struct EvaluationUnits {
  std::string unit;
  std::int64_t size = 0;
  std::function<std::int64_t(std::int64_t unit)> cost;  // predictions
  // Evaluates the listed units; in reading order they are units [begin, begin + n).
  std::function<PlacedSums(const models::Model& model, std::span<const std::int64_t> units, std::int64_t begin,
                           const nn::Context& context)>
      evaluate;
  std::function<std::string()> identity;                            // EvaluationData::identity()
  std::function<std::int64_t(std::int64_t unit)> length = nullptr;  // if set, units are read by ascending length
  bool shows_loss = true;
};

// Evaluates all units, or with EvaluateOptions::most_tokens an evenly spread part. evaluate() throws UserError if
// nothing was predicted.
std::unique_ptr<EvaluationData> evaluation_of(EvaluationUnits units);

// Returns units [begin, end) of the selected ones.
inline std::span<const std::int64_t> units_of(const std::vector<std::int64_t>& selected, std::int64_t begin,
                                              std::int64_t end) {
  return std::span(selected).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
}

// Returns the cross-entropy of each prediction of a CPU batch, in nats; undefined if the model returns only their mean,
// which is then stored in `mean`.
at::Tensor token_losses(const models::Model& model, const models::Batch& batch, models::Memory& memory,
                        const nn::Context& context, at::Tensor* mean = nullptr);

// Returns the sums of the model's losses on a CPU batch with this number of predictions.
Sums cross_entropy(const models::Model& model, const models::Batch& batch, std::int64_t predictions,
                   models::Memory& memory, const nn::Context& context);

// Returns the context with Context::split_invariant set, so that losses do not depend on the batch size.
nn::Context split_invariant(nn::Context context);

// Returns the sums of the cross-entropies (in nats, on any device) and of their squares.
Sums sums_of_losses(const at::Tensor& losses);

// The same for consecutive parts of `losses`: counted[i] losses belong to the part at places[i]. Empty parts are
// omitted.
PlacedSums sums_of_parts(const at::Tensor& losses, const std::vector<std::int64_t>& places,
                         const std::vector<std::int64_t>& counted);

// ProcessGroup::gather() of JSON values. `what` names the operation in errors.
std::vector<Json> gather(ProcessGroup& group, const Json& mine, std::string_view what);

}  // namespace headroom::tasks
