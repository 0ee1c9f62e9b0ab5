// The message that ranks exchange once per step. Messages are reduced in an order that does not depend on the number of
// ranks.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gradient_reducer.h"
#include "training/parallel/gloo_group.h"

namespace headroom::train {

struct StepMessage {
  std::vector<MicroBatchReport> reports;
  std::vector<double> squares;     // sums over the reduced gradients of the owned shards; see gradient_norm()
  std::vector<char> has_gradient;  // by parameter: true if any micro-batch of this rank has one
  bool stop = false;
  // Set only in verified steps: hashes of the gradients of this rank's first range, and of the next rank's first range
  // as recomputed by this rank.
  std::string own_hash, next_hash;
};

// Lossless serialisation. from_text() leaves BufferUpdate::buffer undefined; it throws Error if the text is truncated.
std::string to_text(const StepMessage& message);
StepMessage from_text(const std::string& text);

// Returns the first rank whose hash of the next rank's range differs from the next rank's own hash; nullopt if all
// agree.
std::optional<int> disagreement(const std::vector<StepMessage>& all);

// Sums the losses and collects the buffer updates in the order of the micro-batches; leaves the gradient norm and the
// memory unset. `buffers`: the model's buffers by name, to which the updates refer.
ReducedStep reduce_reports(std::vector<StepMessage>& all, std::int64_t micro_batches,
                           const std::map<std::string, at::Tensor>& buffers);

// Returns the norm of the whole gradient. Sums the squares of all shards in the order of the parameters. An uncut
// tensor has one sum, a cut tensor one sum per block of ops::kSquareBlock elements.
double gradient_norm(const std::vector<StepMessage>& all, const Layout& layout);

// Background thread that reduces this rank's gradient shards during the backward pass.
class Receiver {
 public:
  struct Bucket {  // a range of the gradient buffer that is sent as one message
    std::int64_t begin = 0, end = 0;
    std::uint32_t tag = 0;
    std::int64_t running_begin = 0;  // offset in Work::running
    std::int64_t count() const { return end - begin; }
    at::Tensor in(const at::Tensor& buffer) const { return buffer.narrow(0, begin, count()); }
  };
  struct Work {
    at::Tensor gradients;           // of all parameters, flat, as this rank computes them
    std::vector<Bucket> buckets;    // owned by this rank, in the order in which they become ready
    std::int64_t accumulators = 1;  // per step; accumulator a is computed by rank a mod N in round a / N
    at::Tensor running;             // sums of this rank's buckets over several rounds; undefined if there is one round
  };

  Receiver(parallel::GlooGroup& group, Work work);
  // Does not wait for a round: after an error, the thread may be waiting for a rank that no longer sends.
  ~Receiver();

  void start(std::int64_t round);
  void set_own_ready(std::size_t bucket);  // index in Work::buckets; its gradients from this rank are complete
  void finish();                           // waits for the end of the round; rethrows an error of the thread

 private:
  class Reduction;
  std::shared_ptr<Reduction> reduction_;   // shared with the thread, which outlives this object after an error
  std::vector<std::promise<void>> ready_;  // by bucket
  std::thread thread_;
  std::future<void> done_;
};

}  // namespace headroom::train
