#include "many_rows.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/ops/one_pass.h"
#include "engine/ops/shapes.h"
#include "foundation/core/ceil_div.h"

namespace headroom::ops {
namespace {

thread_local bool many_rows = false;

constexpr std::int64_t kVectors = 64;     // a multiple of what torch's loops compute at once
constexpr std::int64_t kBlock = 1 << 14;  // few enough elements that torch does not divide them among threads

}  // namespace

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
  const bool inference = c10::InferenceMode::is_enabled();  // thread-local, so it must be set in the other threads
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

// Copies the rows of x with gaps between them, so that torch's loops cannot treat them as one long row.
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
