#include "ridge.h"

namespace headroom::convert {
namespace {

constexpr double kRidge = 1e-3;
constexpr double kLeastRidge = 1e-9;  // of the constant

}  // namespace

at::Tensor ridge_regression(const at::Tensor& gram, const at::Tensor& cross, bool constant) {
  const std::int64_t n = gram.size(0), features = n - (constant ? 1 : 0);
  at::Tensor penalty = at::zeros({n}, gram.options());
  penalty.narrow(0, 0, features).fill_(kRidge * gram.diagonal().narrow(0, 0, features).mean().item<double>());
  if (constant) {
    penalty[n - 1] = kLeastRidge * gram[n - 1][n - 1];
  }
  at::Tensor left = gram.clone();
  left.diagonal().add_(penalty);
  const at::Tensor factor = at::linalg_cholesky(left);
  left.reset();  // cholesky_solve() copies the factor, so that two such matrices are needed at a time
  return at::cholesky_solve(cross, factor);
}

}  // namespace headroom::convert
