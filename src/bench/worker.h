// A model of its own in a process of its own, so that two can be timed in turn and their memory kept apart. It answers
// lines as bench/pytorch_step.py does: "run N" with the seconds of N pieces of work, "memory" with the bytes that
// building and running it has added at the peak, "bandwidth" with that of the weights, "quit".
#pragma once

#include <functional>
#include <string>

#include "headroom/config/model_options.h"
#include "yardstick_process.h"

namespace headroom::bench {

struct Job {
  std::function<void()> work;         // one training step, or one token
  std::function<double()> bandwidth;  // of decoding: 10^9 bytes a second of reading the weights; empty: not known
};

struct WorkerSpec {
  std::string recipe;            // or a path
  std::vector<std::string> set;  // changes to it
  std::string work = "step";     // "step": training steps; "decode": tokens decoded one by one
  std::int64_t batch = 1;
  std::string precision = "fp32", device = "cpu";

  config::ModelOptions model() const;  // throws MisuseError
  Job begin() const;                   // builds the model
  Json to_json() const;
};

// Changes to a large model that leave four of its layers, and a vocabulary that does not hide them.
std::vector<std::string> four_layers();

// This program again, as a worker with the threads in force.
YardstickProcess start_worker(const WorkerSpec& spec);

}  // namespace headroom::bench
