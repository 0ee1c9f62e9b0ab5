#include "shares.h"

#include "headroom/ops/optimizers.h"

namespace headroom::train {
namespace {

static_assert(cost::kPieceUnit % ops::kSquareBlock == 0, "the gradient norm's bits would depend on the pieces");

std::vector<cost::SharedTensor> shared_tensors(const nn::Parameters& parameters, config::Optimizer optimizer) {
  std::vector<cost::SharedTensor> tensors;
  for (const nn::Parameter& parameter : parameters.all()) {
    tensors.push_back({.numbers = parameter.tensor.numel(),
                       .by_number = config::is_elementwise(optimizer, parameter.hidden.has_value())});
  }
  return tensors;
}

}  // namespace

bool is_whole(const Piece& piece, const at::Tensor& tensor) {
  return piece.count() == tensor.numel();
}

at::Tensor piece_of(const at::Tensor& tensor, const Piece& piece) {
  return is_whole(piece, tensor) ? tensor : tensor.detach().view({-1}).narrow(0, piece.begin, piece.count());
}

Shares::Shares(const nn::Parameters& parameters, int processes, config::Optimizer optimizer)
    : pieces_(cost::share_out(shared_tensors(parameters, optimizer), processes)),
      numbers_(static_cast<std::size_t>(processes), 0) {
  for (const Piece& piece : pieces_) {
    numbers_[static_cast<std::size_t>(piece.owner)] += piece.count();
  }
}

std::vector<Piece> Share::pieces(const nn::Parameters& parameters) const {
  if (shares_ == nullptr) {
    return cost::share_out(shared_tensors(parameters, config::Optimizer::adamw), 1);  // whole tensors
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
