#include "many_rows.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/ops/backend.h"
#include "engine/ops/expert_linear/expert_linear_operator.h"
#include "engine/ops/linear/dense_matmul.h"
#include "engine/ops/shapes.h"
#include "engine/ops/views.h"
#include "foundation/core/ceil_div.h"
#include "foundation/core/transformed.h"
#include "headroom/ops/choice.h"

namespace headroom::ops {
namespace {

thread_local bool many_rows = false;

constexpr std::int64_t kVectors = 64;     // a multiple of what torch's loops compute at once
constexpr std::int64_t kBlock = 1 << 14;  // few enough elements that torch does not divide them among threads

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

ManyRows::ManyRows(bool active) : before_(std::exchange(many_rows, many_rows || active)) {}

ManyRows::~ManyRows() {
  many_rows = before_;
}

bool ManyRows::active() {
  return many_rows;
}

at::Tensor elementwise(const at::Tensor& x, const std::function<at::Tensor(const at::Tensor&)>& f) {
  if (!ManyRows::active() || !x.is_cpu()) {
    return f(x);
  }
  const at::Tensor from = x.contiguous().view({-1}), to = at::empty_like(from);
  const std::int64_t n = from.numel(), whole = n / kVectors * kVectors;
  const bool inference = c10::InferenceMode::is_enabled();  // of this thread, to be set in the other threads
  at::parallel_for(0, ceil_div(whole, kBlock), 1, [&](std::int64_t begin, std::int64_t end) {
    const c10::InferenceMode mode(inference);
    const at::NoGradGuard no_grad;
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t size = std::min(kBlock, whole - block * kBlock);
      to.narrow(0, block * kBlock, size).copy_(f(from.narrow(0, block * kBlock, size)));
    }
  });
  if (whole < n) {
    const at::Tensor rest = at::constant_pad_nd(from.narrow(0, whole, n - whole), {0, kVectors - (n - whole)});
    to.narrow(0, whole, n - whole).copy_(f(rest).narrow(0, 0, n - whole));
  }
  return to.view(x.sizes());
}

at::Tensor sigmoid(const at::Tensor& x) {
  return elementwise(x, [](const at::Tensor& some) { return some.sigmoid(); });
}

// The rows of x with a gap between them, so that torch's loops cannot treat them as one long row.
at::Tensor with_gaps(const at::Tensor& x, std::int64_t elements) {
  constexpr std::int64_t kGap = 1;
  const std::int64_t n = x.size(0);
  const at::Tensor to = narrowed(at::empty({n, elements + kGap}, x.options()), 1, 0, elements);
  return to.copy_(reshaped(x, {n, elements}));
}

at::Tensor elementwise_by_rows(const at::Tensor& x, const std::function<at::Tensor(const at::Tensor&)>& f,
                               bool takes_gaps) {
  const std::int64_t n = x.size(0), elements = x.numel() / std::max<std::int64_t>(1, n);
  const bool several = x.is_contiguous() && elements > 0 && (takes_gaps || elements % kVectors == 0);
  const std::int64_t most = several ? std::max<std::int64_t>(1, kBlock / elements) : 1;
  const auto of = [&](const at::Tensor& some) {
    if (some.size(0) == 1 || elements % kVectors == 0) {
      return f(some);
    }
    return reshaped(f(with_gaps(some, elements)).contiguous(), some.sym_sizes());
  };
  if (n <= most) {
    return of(x);
  }
  std::vector<at::Tensor> parts;
  for (std::int64_t row = 0; row < n; row += most) {
    parts.push_back(of(narrowed(x, 0, row, std::min(most, n - row))));
  }
  return at::cat(parts);
}

}  // namespace headroom::ops
