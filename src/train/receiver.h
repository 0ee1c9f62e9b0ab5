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

#include "headroom/parallel/world.h"

namespace headroom::train {

class Receiver {
 public:
  struct Bucket {  // a range of the block of gradients, sent together
    std::int64_t begin = 0, end = 0;
    std::uint32_t tag = 0;
  };
  struct Work {
    at::Tensor gradients;         // the block, all processes' parameters
    std::vector<Bucket> buckets;  // this process's, in the order that they become ready
    std::int64_t sums = 1;        // a step; sum s is computed by process s mod N in round s / N
    at::Tensor running;           // of this process's range: needed where there are several rounds
    std::int64_t begin = 0;       // of this process's range in the block
  };

  Receiver(parallel::World& world, Work work);
  ~Receiver();

  void start(std::int64_t round);
  void own_ready(std::size_t bucket);  // of the own ones: this process's own sum lies in the block
  void finish();                       // waits for the round's end; throws what went wrong in it

  // The sums of all rounds so far, of this process's range; undefined: they are in the block.
  const at::Tensor& sum() const;

 private:
  class State;
  std::shared_ptr<State> state_;  // shared with the thread, which an error may leave behind
  std::thread thread_;
};

}  // namespace headroom::train
