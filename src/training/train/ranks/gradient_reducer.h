// The gradients of a training step: which micro-batches a rank computes, and the reduction of their gradients over all
// ranks in the order of the micro-batches, so that the result does not depend on the number of ranks.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "headroom/config/run_options.h"
#include "headroom/models/model.h"
#include "headroom/nn/context.h"
#include "sharding.h"
#include "training/parallel/gloo_group.h"

namespace headroom::train {

// What a micro-batch yields besides its gradients.
struct MicroBatchReport {
  std::int64_t micro_batch = 0;
  // Float64 scalars, weighted by the micro-batch's fraction of the step's targets; regulariser: undefined without one.
  at::Tensor cross_entropy, regulariser;
  nn::BufferUpdates updates;
};

// Micro-batches [first, end), whose gradients go into one accumulator.
struct MicroBatchRange {
  std::int64_t first = 0, end = 0;
};

// What a rank has to compute in a step.
struct StepPasses {
  // The forward pass of report.micro_batch. Returns its loss, ready for backward(); reads and replaces the memory of
  // its rows and fills in the report.
  std::function<at::Tensor(models::Memory& memory, MicroBatchReport& report)> forward;
  const models::Memory& memory;  // of this rank's rows
  std::int64_t rows = 0;         // of a micro-batch
  bool verify = false;           // also compare this rank's gradients with those that another rank computes
};

// A step over all micro-batches. The same on every rank, except for `memory`.
struct ReducedStep {
  double loss = 0.0, regulariser = 0.0;
  double gradient_norm = 0.0;
  nn::BufferUpdates updates;
  models::Memory memory;  // of this rank's rows, after the step
  bool stop = false;      // some rank was asked to stop
};

class GradientReducer {
 public:
  virtual ~GradientReducer() = default;

  // Runs the passes of this rank's micro-batches and reduces the gradients. Throws Error if a verification fails.
  virtual ReducedStep run(const StepPasses& passes) = 0;
  // The shards that this rank updates, and their reduced gradients, in the same order.
  virtual const std::vector<Shard>& owned() const = 0;
  virtual std::vector<at::Tensor> gradients() = 0;
  // Ends the step. If the parameters were updated, every rank receives the others' shards.
  virtual void publish(bool updated) = 0;
};

// local_reducer() for a single rank with one accumulator a step, or one for each micro-batch: autograd's own sums have
// the same bits. Otherwise ordered_reducer().
std::unique_ptr<GradientReducer> make_gradient_reducer(models::Model& model, const config::TrainOptions& options,
                                                       parallel::GlooGroup& group, const Sharding& sharding);
std::unique_ptr<GradientReducer> local_reducer(models::Model& model, const config::TrainOptions& options);
// Turns the model's parameters into views of one shared buffer. `group` and `sharding` must outlive the reducer.
std::unique_ptr<GradientReducer> ordered_reducer(models::Model& model, const config::TrainOptions& options,
                                                 parallel::GlooGroup& group, const Sharding& sharding);

// Gradient accumulators of a step; each sums the same number of micro-batches.
std::int64_t accumulators_of(const config::TrainOptions& options);
// The micro-batches of a rank, one range a round: accumulator a belongs to rank a mod N. The last range is empty on
// ranks without an accumulator in the last round.
std::vector<MicroBatchRange> ranges_of(const config::TrainOptions& options, int rank, int ranks);

// The forward passes of a rank's own micro-batches in their order. Collects their reports and memories.
class OwnPasses {
 public:
  explicit OwnPasses(const StepPasses& passes) : passes_(passes) {}
  at::Tensor forward(std::int64_t micro_batch);
  std::vector<MicroBatchReport> take_reports() { return std::move(reports_); }
  models::Memory take_memory() { return models::Memory::join(std::move(memories_)); }

 private:
  const StepPasses& passes_;
  std::vector<models::Memory> memories_;
  std::vector<MicroBatchReport> reports_;
};

// Model memory (Transformer-XL) with several ranks: each rank carries the memory of the rows that it computes.

// The rows of these ranges, out of all rows of a batch in `accumulate` micro-batches.
models::Memory own_rows(const models::Memory& all, const std::vector<MicroBatchRange>& ranges, std::int64_t accumulate);

// The inverse, for checkpoints: layer l of all rows is on rank l mod N; on other ranks it is a tensor of the meta
// device. A collective call, given each rank's own memory.
models::Memory gather_layers(const models::Memory& own, const config::TrainOptions& options,
                             parallel::GlooGroup& group);

}  // namespace headroom::train
