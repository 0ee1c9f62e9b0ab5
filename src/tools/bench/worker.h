// A model of its own in a process of its own, so that two can be timed in turn and their memory kept apart. It answers
// lines as bench/pytorch_step.py does: "run N" with the seconds of N pieces of work, "memory" with the bytes that
// building and running it has added at the peak, "bandwidth" with that of the weights, "prompt" with the seconds of
// reading it anew, "quit".
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "headroom/config/model_options.h"
#include "training/parallel/gloo_group.h"
#include "yardstick_process.h"

namespace headroom::bench {

struct Job {
  std::function<void()> work;         // one training step, one token, or one batch read forward
  std::function<double()> bandwidth;  // of decoding: 10^9 bytes a second of reading the weights; empty: not known
  std::function<void()> prompt;       // of decoding: begins sequences anew by reading their prompts
};

struct WorkerSpec {
  std::string recipe;            // or a path
  std::vector<std::string> set;  // changes to it
  std::string work = "step";     // "step": training steps; "decode": tokens decoded one by one; "forward": losses
  std::int64_t batch = 1;
  std::string precision = "fp32", device = "cpu";
  std::int64_t accumulate = 1;  // micro-batches of a training step
  std::int64_t prompt = 0;      // decode: tokens of a prompt; 0: 64 or half of the context

  config::ModelOptions model() const;  // throws UserError
  Job begin() const;                   // builds the model
  Json to_json() const;
};

// Changes to a large model that leave four of its layers, and a vocabulary that does not hide them.
std::vector<std::string> four_layers();

// This program again, as a worker with the threads in force.
YardstickProcess start_worker(const WorkerSpec& spec);

// Several of them that share each step, with so many threads each.
class Workers {
 public:
  Workers(const WorkerSpec& spec, int processes, std::int64_t threads);
  ~Workers();  // tells all to quit before it waits for one: they end together
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  void run();                          // one piece of work
  std::vector<std::int64_t> memory();  // of each

 private:
  parallel::Rendezvous rendezvous_;
  std::vector<std::unique_ptr<YardstickProcess>> processes_;
};

}  // namespace headroom::bench
