// Background thread that reduces this rank's gradient shards during the backward pass.
#pragma once

#include <ATen/ATen.h>

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "training/parallel/shared_buffer.h"

namespace headroom::train {

class Receiver {
 public:
  struct Bucket {  // a range of the gradient buffer that is sent as one message
    parallel::SharedBuffer::Range range;
    std::int64_t running_begin = 0;  // offset in Work::running
  };
  struct Work {
    std::shared_ptr<const parallel::SharedBuffer> gradients;
    std::uint32_t reduced_tag = 0;  // tells ranks whose memory was read that they may change their gradients
    std::vector<Bucket> buckets;    // owned by this rank, in the order in which they become ready
    std::int64_t accumulators = 1;  // per step; accumulator a is computed by rank a mod N in round a / N
    at::Tensor running;             // sums of this rank's buckets over several rounds; undefined if there is one round
  };

  Receiver(parallel::GlooGroup& group, Work work);
  ~Receiver();

  void start(std::int64_t round);
  void set_own_ready(std::size_t bucket);  // index in Work::buckets; its gradients from this rank are complete
  void finish();                           // waits for the end of the round; rethrows an error of the thread

 private:
  class State;
  std::shared_ptr<State> state_;  // shared with the thread, which outlives this object after an error
  std::thread thread_;
};

}  // namespace headroom::train
