// Adds up, in a thread of its own while backward passes go on, the gradients that this process looks after.
#pragma once

#include <ATen/ATen.h>

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "training/parallel/block.h"

namespace headroom::train {

class Receiver {
 public:
  struct Bucket {  // a range of the block of gradients, sent together
    parallel::Block::Range range;
    std::int64_t sum = 0;  // where its sum begins in `running`
  };
  struct Work {
    std::shared_ptr<const parallel::Block> gradients;  // of all processes' parameters
    // Said to a process whose gradients were read where they lie: they may change.
    std::uint32_t added = 0;
    std::vector<Bucket> buckets;  // this process's, in the order that they become ready
    std::int64_t sums = 1;        // a step; sum s is computed by process s mod N in round s / N
    at::Tensor running;           // of this process's buckets: needed where there are several rounds
  };

  Receiver(parallel::GlooGroup& world, Work work);
  ~Receiver();

  void start(std::int64_t round);
  void own_ready(std::size_t bucket);  // of the own ones: this process's own sum lies in the block
  void finish();                       // waits for the round's end; throws what went wrong in it

 private:
  class State;
  std::shared_ptr<State> state_;  // shared with the thread, which an error may leave behind
  std::thread thread_;
};

}  // namespace headroom::train
