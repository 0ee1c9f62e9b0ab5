// Which of several processes looks after which parameter: adds up its gradients, keeps its moments, moves it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "headroom/nn/parameters.h"

namespace headroom::train {

class Shares {
 public:
  // The largest parameters first, each to the process that has least so far: the same everywhere.
  Shares(const nn::Parameters& parameters, int processes);
  int owner(std::size_t parameter) const { return owners_[parameter]; }
  std::int64_t numbers(int process) const { return numbers_[static_cast<std::size_t>(process)]; }

 private:
  std::vector<int> owners_;            // of each parameter, in their order
  std::vector<std::int64_t> numbers_;  // of each process
};

// The share of one process; of a process alone everything.
class Share {
 public:
  Share() = default;
  Share(const Shares& shares, int process) : shares_(&shares), process_(process) {}
  bool owns(std::size_t parameter) const { return shares_ == nullptr || shares_->owner(parameter) == process_; }

 private:
  const Shares* shares_ = nullptr;
  int process_ = 0;
};

}  // namespace headroom::train
