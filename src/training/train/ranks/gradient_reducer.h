// Assigns the micro-batches of a step to ranks, and reduces their gradients over all ranks in the order of the
// micro-batches, so that the result does not depend on the number of ranks. Parameter shards are assigned to ranks: the
// owner of a shard reduces its gradients, stores its moments and updates it.
#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "headroom/config/run_options.h"
#include "headroom/core/process_group.h"
#include "headroom/models/model.h"
#include "headroom/nn/context.h"
#include "headroom/nn/parameters.h"
#include "training/parallel/gloo_group.h"
#include "training/parallel/shards.h"

namespace headroom::train {

using parallel::Shard;  // Shard::tensor is the parameter's index

// Returns the tensor itself if the shard covers it, else a flat view of the shard. The tensor must be contiguous.
at::Tensor view_of(const at::Tensor& tensor, const Shard& shard);
bool is_whole(const Shard& shard, const at::Tensor& tensor);

// Returns the shards of all parameters, in order, assigned to this number of ranks (parallel::assign_shards). A single
// rank owns all parameters, uncut. Identical on all ranks.
std::vector<Shard> all_shards(const nn::Parameters& parameters, config::Optimizer optimizer, int ranks);
// Returns this rank's shards.
std::vector<Shard> owned_shards(const nn::Parameters& parameters, config::Optimizer optimizer,
                                const ProcessGroup& group);

// Offsets in the flat buffers. Uncut parameters come first, grouped by owner and in reverse order within an owner, the
// order in which backward passes reach them. Parameters that are cut into shards follow.
struct Layout {
  struct Place {  // the range of a parameter, and its buckets [first_bucket, end_bucket)
    std::int64_t begin = 0, count = 0;
    std::size_t first_bucket = 0, end_bucket = 0;
  };
  struct Bucket {  // elements of one owner that are sent together, at most parallel::bucket_elements()
    int owner = 0;
    std::int64_t begin = 0, end = 0;
    std::int64_t parameters = 0;  // number of parameters in it
    std::size_t last = 0;         // the parameter whose gradient is computed last
  };
  struct OwnerRange {  // consecutive buckets of one owner
    int owner = 0;
    std::int64_t begin = 0, end = 0;
  };

  Layout(std::vector<Shard> of_all, int ranks);  // all_shards() for this number of ranks

  // Returns the bucket of this parameter that contains this element of the buffer.
  std::size_t bucket_at(std::size_t parameter, std::int64_t element) const;

  std::vector<Shard> shards;
  std::vector<Place> places;  // by parameter
  std::vector<Bucket> buckets;
  std::vector<OwnerRange> owner_ranges;
  std::int64_t elements = 0;  // in the whole buffer

 private:
  void add(const Shard* first, const Shard* end, std::int64_t most);
  void add_to_buckets(const Shard& shard, std::int64_t begin, std::int64_t most);
};

// Results of a micro-batch other than its gradients.
struct MicroBatchReport {
  std::int64_t micro_batch = 0;
  // Float64 scalars, weighted by the micro-batch's fraction of the step's targets; regulariser is undefined if the
  // model has none.
  at::Tensor cross_entropy, regulariser;
  nn::BufferUpdates updates;
};

// Micro-batches [first, end), which share one gradient accumulator.
struct MicroBatchRange {
  std::int64_t first = 0, end = 0;
};

// The work of one rank in a step.
struct StepPasses {
  // Runs the forward pass of micro-batch report.micro_batch and returns its loss, ready for backward(). Replaces the
  // memory of the micro-batch's rows and fills in the report.
  std::function<at::Tensor(models::Memory& memory, MicroBatchReport& report)> forward;
  const models::Memory& memory;  // of this rank's rows
  std::int64_t rows = 0;         // per micro-batch
  bool verify = false;           // also check another rank's gradients by recomputing them
};

// The result of a step over all micro-batches. Identical on all ranks, except for `memory`.
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

  // Runs the forward and backward passes of this rank's micro-batches and reduces the gradients. Throws Error if a
  // verification fails.
  virtual ReducedStep run(const StepPasses& passes) = 0;
  // owned() returns the shards that this rank updates; gradients() returns their reduced gradients, in the same order.
  virtual const std::vector<Shard>& owned() const = 0;
  virtual std::vector<at::Tensor> gradients() = 0;
  // Ends the step. If `updated`, every rank receives the updated shards of all other ranks.
  virtual void publish(bool updated) = 0;
};

// Returns local_reducer() for a single rank with one accumulator per step or one per micro-batch, where autograd's own
// sums are bit-identical; otherwise ordered_reducer().
std::unique_ptr<GradientReducer> make_gradient_reducer(models::Model& model, const config::TrainOptions& options,
                                                       parallel::GlooGroup& group);
std::unique_ptr<GradientReducer> local_reducer(models::Model& model, const config::TrainOptions& options);
// Turns the model's parameters into views of one flat buffer. `group` must outlive the reducer.
std::unique_ptr<GradientReducer> ordered_reducer(models::Model& model, const config::TrainOptions& options,
                                                 parallel::GlooGroup& group);

// Returns the micro-batches of a rank, one range per round: accumulator a is computed by rank a mod N. The last range
// is empty on ranks that have no accumulator in the last round.
std::vector<MicroBatchRange> ranges_of(const config::TrainOptions& options, int rank, int ranks);

// Returns, by row of a batch, whether the row is in these ranges.
std::vector<bool> rows_of(const config::TrainOptions& options, const std::vector<MicroBatchRange>& ranges);

// Runs the forward passes of a rank's own micro-batches in order, and collects their reports and memories.
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

// Returns the rows of these ranges from a batch's memory of all rows; the batch has `accumulate` micro-batches.
models::Memory own_rows(const models::Memory& all, const std::vector<MicroBatchRange>& ranges, std::int64_t accumulate);

// The inverse, for checkpoints: rank l mod N gets layer l of all rows; on the other ranks this layer is a meta tensor.
// A collective call; each rank passes its own memory.
models::Memory gather_layers(const models::Memory& own, const config::TrainOptions& options,
                             parallel::GlooGroup& group);

}  // namespace headroom::train
