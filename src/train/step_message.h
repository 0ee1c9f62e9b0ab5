// What the processes tell each other once a step, exact to the bit.
#pragma once

#include <string>
#include <vector>

#include "exchange.h"

namespace headroom::train {

struct StepMessage {
  std::vector<Report> reports;
  std::vector<double> squares;  // of the sums of gradients, a parameter that the process owns
  std::vector<bool> present;    // of all parameters: some micro-batch here had a gradient for it
  bool stop = false;
};

std::string to_text(const StepMessage& message);
// The updates come without their buffers, which every process has its own of.
StepMessage from_text(const std::string& text);

}  // namespace headroom::train
