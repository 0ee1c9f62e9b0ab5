// How a step's gradients come together: the micro-batches that this process computes, and the sum of all in their
// order. With one process, autograd adds them up where they are.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "headroom/config/run_options.h"
#include "headroom/models/model.h"
#include "headroom/nn/context.h"
#include "shares.h"
#include "training/parallel/gloo_group.h"

namespace headroom::train {

// What a micro-batch reports besides its gradients.
struct Report {
  std::int64_t micro_batch = 0;
  at::Tensor cross_entropy, regulariser;  // scalars, float64, times the micro-batch's share; regulariser: or undefined
  nn::BufferUpdates updates;
};

// A step over all its micro-batches, the same in every process.
struct Gathered {
  double loss = 0.0, regulariser = 0.0;
  double gradient_norm = 0.0;
  nn::BufferUpdates updates;
  bool stop = false;  // some process was asked to stop
};

// Micro-batches [first, end) that are one sum of gradients.
struct Part {
  std::int64_t first = 0, end = 0;
};

class Exchange {
 public:
  virtual ~Exchange() = default;

  // Before a step's parts: what another process computes in its first one, again, to be compared in gather(). `memory`
  // is this process's own; `compute` makes the backward passes of a part of which it gets the memory.
  using Compute = std::function<void(const Part& part, const models::Memory& memory)>;
  virtual void verify(const models::Memory& memory, const Compute& compute) = 0;

  // Those of the parts that this process computes, in their order.
  virtual std::vector<Part> parts() const = 0;
  // Around the backward passes of each part in turn; a process that has none in the last round does it all the same.
  virtual void begin(const Part& part) = 0;
  virtual void last_backward() = 0;  // the part's last one comes next
  virtual void end(const Part& part) = 0;

  // Once after all parts: what all processes report, and the norm of the sum of all gradients.
  virtual Gathered gather(std::vector<Report> mine) = 0;

  // The pieces of parameters that this process moves, in their order, and the sums of their gradients.
  virtual const std::vector<Piece>& owned() const = 0;
  virtual std::vector<at::Tensor> gradients() = 0;
  // After they were moved (or not): every process gets all of them.
  virtual void publish(bool moved) = 0;
};

// The one or the other: one process whose sums of gradients are those of micro-batches needs nobody to add them.
std::unique_ptr<Exchange> make_exchange(models::Model& model, const config::TrainOptions& options,
                                        parallel::GlooGroup& world, const Shares& shares);
std::unique_ptr<Exchange> local_exchange(models::Model& model, const config::TrainOptions& options);
// Parameters of the model become views of one block of memory. `world` and `shares` must outlive it.
std::unique_ptr<Exchange> ordered_exchange(models::Model& model, const config::TrainOptions& options,
                                           parallel::GlooGroup& world, const Shares& shares);

// Sums of gradients a step, a whole number of micro-batches each.
std::int64_t sums_of(const config::TrainOptions& options);
// The parts of one of several processes, a round each: sum s is that of process s mod N. An empty one where a process
// has none in the last round.
std::vector<Part> parts_of(const config::TrainOptions& options, int rank, int processes);

}  // namespace headroom::train
