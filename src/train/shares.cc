#include "headroom/train/shares.h"

#include "headroom/ops/adamw.h"

namespace headroom::train {
namespace {

static_assert(cost::kPieceUnit % ops::kSquareBlock == 0, "the gradient norm's bits would depend on the pieces");

std::vector<std::int64_t> sizes_of(const nn::Parameters& parameters) {
  std::vector<std::int64_t> sizes;
  for (const nn::Parameter& parameter : parameters.all()) {
    sizes.push_back(parameter.tensor.numel());
  }
  return sizes;
}

}  // namespace

bool is_whole(const Piece& piece, const at::Tensor& tensor) {
  return piece.count() == tensor.numel();
}

at::Tensor piece_of(const at::Tensor& tensor, const Piece& piece) {
  return is_whole(piece, tensor) ? tensor : tensor.detach().view({-1}).narrow(0, piece.begin, piece.count());
}

Shares::Shares(const nn::Parameters& parameters, int processes, config::Optimizer optimizer)
    : pieces_(cost::share_out(sizes_of(parameters), processes, config::by_number(optimizer))),
      numbers_(static_cast<std::size_t>(processes), 0) {
  for (const Piece& piece : pieces_) {
    numbers_[static_cast<std::size_t>(piece.owner)] += piece.count();
  }
}

std::vector<Piece> Share::pieces(const nn::Parameters& parameters) const {
  if (shares_ == nullptr) {
    return cost::share_out(sizes_of(parameters), 1, false);
  }
  std::vector<Piece> own;
  for (const Piece& piece : shares_->pieces()) {
    if (piece.owner == process_) {
      own.push_back(piece);
    }
  }
  return own;
}

}  // namespace headroom::train
