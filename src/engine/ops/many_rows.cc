#include "many_rows.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <utility>
#include <vector>

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

at::Tensor elementwise_by_rows(const at::Tensor& x, const std::function<at::Tensor(const at::Tensor&)>& f) {
  const std::int64_t n = x.size(0), elements = x.numel() / std::max<std::int64_t>(1, n);
  const bool whole = x.is_contiguous() && elements > 0 && elements % kVectors == 0;
  const std::int64_t most = whole ? std::max<std::int64_t>(1, kBlock / elements) : 1;
  if (n <= most) {
    return f(x);
  }
  std::vector<at::Tensor> parts;
  for (std::int64_t row = 0; row < n; row += most) {
    parts.push_back(f(x.narrow(0, row, std::min(most, n - row))));
  }
  return at::cat(parts);
}

}  // namespace headroom::ops
