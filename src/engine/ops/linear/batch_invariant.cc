#include "batch_invariant.h"

#include <algorithm>
#include <vector>

#include "engine/ops/backend.h"
#include "engine/ops/expert_linear/expert_linear_operator.h"
#include "engine/ops/shapes.h"
#include "foundation/core/transformed.h"
#include "headroom/ops/choice.h"

namespace headroom::ops {
namespace {

// Whether x's dtype is supported by the operator's CPU backend. Counts the choice.
bool chooses_fused(const char* op, const char* backend, Implementation wanted, const at::Tensor& x) {
  const std::string refusal = float32_or_bfloat16(x.scalar_type()) ? "" : refusal_of(x.scalar_type());
  return choose(op, wanted, refusal, backend) == Implementation::fused;
}

}  // namespace

at::Tensor linear_batch_invariant(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& b,
                                  Implementation implementation) {
  if (!w.is_cpu() || x.size(0) == 1) {
    return linear(x, w, b, implementation);
  }
  if (chooses_fused("linear", "products", implementation, x)) {
    return dense_matmul_batch_invariant(in_type(x, w.scalar_type()), w, b);
  }
  std::vector<at::Tensor> rows =
      transformed(x.split(1), [&](const at::Tensor& row) { return linear(row, w, b, Implementation::reference); });
  return at::cat(rows);
}

std::vector<at::Tensor> linear_batch_invariant_of_each(const at::Tensor& x, const std::vector<MatrixAndBias>& matrices,
                                                       Implementation implementation) {
  const bool alike = std::all_of(matrices.begin(), matrices.end(), [&](const MatrixAndBias& m) {
    return m.matrix.is_cpu() && m.matrix.scalar_type() == matrices[0].matrix.scalar_type();
  });
  const auto fused = [&](const MatrixAndBias&) { return chooses_fused("linear", "products", implementation, x); };
  if (alike && x.size(0) > 1 && std::all_of(matrices.begin(), matrices.end(), fused)) {
    return dense_matmuls_batch_invariant(in_type(x, matrices[0].matrix.scalar_type()), matrices);
  }
  return transformed(matrices,
                     [&](const auto& m) { return linear_batch_invariant(x, m.matrix, m.bias, implementation); });
}

at::Tensor expert_linear_batch_invariant(const ExpertLinearInputs& in, Implementation implementation) {
  if (!in.bank.is_cpu() || in.index.size(0) == 1) {
    return expert_linear(in, implementation);
  }
  if (chooses_fused("expert_linear", "kernels", implementation, in.input)) {
    return expert_matmul_batch_invariant(in);
  }
  std::vector<at::Tensor> rows;
  for (std::int64_t row = 0; row < in.index.size(0); ++row) {
    ExpertLinearInputs one = in;
    one.input = in.input.narrow(0, row, 1);
    one.index = in.index.narrow(0, row, 1);
    if (in.weight) {
      one.weight = in.weight->narrow(0, row, 1);
    }
    rows.push_back(expert_linear(one, Implementation::reference));
  }
  return at::cat(rows);
}

}  // namespace headroom::ops
