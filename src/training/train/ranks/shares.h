// Which of several processes looks after which parameters, or pieces of them: adds up their gradients, keeps the
// optimizer's moments, moves them.
#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "headroom/config/run_options.h"
#include "headroom/nn/parameters.h"
#include "training/cost/processes.h"

namespace headroom::train {

// Of a parameter, in `tensor` by its place among all.
using cost::Piece;

// The piece of a contiguous tensor: itself, or a row of numbers of its memory.
at::Tensor piece_of(const at::Tensor& tensor, const Piece& piece);
bool is_whole(const Piece& piece, const at::Tensor& tensor);

class Shares {
 public:
  // The same in every process.
  Shares(const nn::Parameters& parameters, int processes, config::Optimizer optimizer);
  const std::vector<Piece>& pieces() const { return pieces_; }  // of all processes, in the order of the parameters
  std::int64_t numbers(int process) const { return numbers_[static_cast<std::size_t>(process)]; }

 private:
  std::vector<Piece> pieces_;
  std::vector<std::int64_t> numbers_;  // of each process
};

// The share of one process; of a process alone everything.
class Share {
 public:
  Share() = default;
  Share(const Shares& shares, int process) : shares_(&shares), process_(process) {}
  std::vector<Piece> pieces(const nn::Parameters& parameters) const;
  bool leads() const { return process_ == 0; }

 private:
  const Shares* shares_ = nullptr;
  int process_ = 0;
};

}  // namespace headroom::train
