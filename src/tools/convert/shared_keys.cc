#include "shared_keys.h"

#include <algorithm>
#include <tuple>
#include <vector>

namespace headroom::convert {
namespace {

constexpr double kLeast = 1e-10;  // eigenvalues, relative to the largest

// The root mean square over the tokens of each column of x queries, [H, c].
at::Tensor sizes_of(const at::Tensor& queries, const Roots& roots) {
  return at::matmul(roots.root, queries.flatten(1)).norm(2, at::IntArrayRef{0}).view({queries.size(1), -1});
}

}  // namespace

Roots::Roots(const at::Tensor& covariance) {
  auto [values, vectors] = at::linalg_eigh(covariance);
  values = values.clamp_min(kLeast * values.max().item<double>()).sqrt();
  root = at::mm(vectors * values, vectors.t());
  inverse = at::mm(vectors / values, vectors.t());
}

LowRank low_rank(const at::Tensor& matrix, const at::Tensor& weights, std::int64_t rank, const Roots& roots) {
  const at::Tensor whitened = at::mm(roots.root, matrix);
  const at::Tensor left = std::get<0>(at::linalg_svd(whitened * weights, /*full_matrices=*/false));
  const at::Tensor kept = left.narrow(1, 0, std::min(rank, left.size(1)));
  return {.down = at::mm(roots.inverse, kept), .up = at::mm(kept.t(), whitened)};
}

Normalised with_orthonormal_columns(const LowRank& factors, const Roots& roots) {
  const auto [basis, triangle] = at::linalg_qr(factors.down);
  const double size = at::mm(roots.root, basis).square().sum(0).mean().sqrt().item<double>();
  return {.factors = {.down = basis, .up = at::mm(triangle, factors.up)}, .size = size};
}

SharedKeys share_rotated(const at::Tensor& queries, const at::Tensor& keys, const Roots& roots) {
  const std::int64_t half = keys.size(2) / 2;
  if (half == 0) {
    return {.queries = queries, .keys = keys.select(1, 0)};  // no channels
  }
  const auto complex = [half](const at::Tensor& w) {  // [d, H, c/2]
    return at::complex(w.narrow(2, 0, half).contiguous(), w.narrow(2, half, half).contiguous());
  };
  const at::Tensor q = complex(queries), k = complex(keys), size = sizes_of(queries, roots);
  const at::Tensor weight =
      (size.narrow(1, 0, half).square() + size.narrow(1, half, half).square()).sqrt();  // [H, c/2]
  const at::Tensor root = roots.root.to(at::kComplexDouble), inverse = roots.inverse.to(at::kComplexDouble);
  std::vector<at::Tensor> shared_k, shared_q;
  for (std::int64_t pair = 0; pair < half; ++pair) {
    const at::Tensor weights = weight.select(1, pair).clamp_min(1e-12);
    const at::Tensor whitened = at::mm(root, k.select(2, pair));                                     // [d, H]
    const at::Tensor leading = std::get<0>(at::linalg_svd(whitened * weights, false)).select(1, 0);  // [d]
    const at::Tensor a = at::mv(whitened.t(), leading.conj());  // k_h = a_h leading, approximately
    shared_k.push_back(at::mv(inverse, leading));
    shared_q.push_back(q.select(2, pair) * a.conj());
  }
  const at::Tensor new_k = at::stack(shared_k, 1), new_q = at::stack(shared_q, 2);
  return {.queries = at::cat({at::real(new_q), at::imag(new_q)}, 2),
          .keys = at::cat({at::real(new_k), at::imag(new_k)}, 1)};
}

SharedKeys share_plain(const at::Tensor& queries, const at::Tensor& keys, std::int64_t rank, const Roots& roots) {
  const LowRank factors = low_rank(keys.flatten(1), sizes_of(queries, roots).flatten(), rank, roots);
  const at::Tensor up = factors.up.view({factors.up.size(0), keys.size(1), keys.size(2)});  // [r, H, c]
  return {.queries = at::einsum("dhc,rhc->dhr", {queries, up}), .keys = factors.down};
}

}  // namespace headroom::convert
