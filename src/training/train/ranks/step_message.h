// What the processes tell each other once a step, exact to the bit.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "exchange.h"

namespace headroom::train {

struct StepMessage {
  std::vector<Report> reports;
  std::vector<double> squares;  // of the sums of gradients, a parameter that the process owns
  std::vector<bool> present;    // of all parameters: some micro-batch here had a gradient for it
  bool stop = false;
  // Hashes of gradients, where a step is verified: of this process's own first part, and of the next process's.
  std::string own, next;
};

std::string to_text(const StepMessage& message);
// The updates come without their buffers, which every process has its own of.
StepMessage from_text(const std::string& text);

// The first process whose gradients of the next one's part are others than that one's own; none where a step is not
// verified.
std::optional<int> disagreement(const std::vector<StepMessage>& all);

}  // namespace headroom::train
