// Block by block of rows, on any device.
#include <ATen/Parallel.h>

#include <algorithm>

#include "engine/kernels/cpu/attention/softmax_rows.h"
#include "engine/ops/linear/product.h"
#include "operator.h"

namespace headroom::ops {
namespace {

constexpr std::int64_t kBlockNumbers = std::int64_t{1} << 23;  // logits held at once, about

std::int64_t rows_in_block(std::int64_t vocabulary) {
  return std::clamp<std::int64_t>(kBlockNumbers / std::max<std::int64_t>(vocabulary, 1), 64, 1024);
}

// A block's losses, and in place of its logits (without bias) the gradient for them: [rows, V] times `weight`.
at::Tensor losses_and_gradient(const at::Tensor& logits, const at::Tensor& bias, const at::Tensor& target,
                               double weight) {
  const std::int64_t rows = logits.size(0), n = logits.size(1);
  if (logits.is_cpu() && logits.scalar_type() == at::kFloat) {
    const at::Tensor losses = at::empty({rows}, logits.options());
    const at::Tensor wanted = target.contiguous(),
                     wide = bias.defined() ? bias.to(at::kFloat).contiguous() : at::Tensor();
    float* row = logits.mutable_data_ptr<float>();
    float* loss = losses.mutable_data_ptr<float>();
    const float* b = wide.defined() ? wide.const_data_ptr<float>() : nullptr;
    const std::int64_t* column = wanted.const_data_ptr<std::int64_t>();
    at::parallel_for(0, rows, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        loss[i] = kernels::cross_entropy_row(row + i * n, b, n, column[i], static_cast<float>(weight));
      }
    });
    return losses;
  }
  if (bias.defined()) {
    logits.add_(bias);
  }
  const at::Tensor ignored = target.lt(0), column = target.clamp_min(0).unsqueeze(1);
  logits.sub_(logits.amax(1, /*keepdim=*/true));
  const at::Tensor hit = logits.gather(1, column).squeeze(1);
  const at::Tensor sums = logits.exp_().sum(1);
  logits.mul_((weight / sums).masked_fill_(ignored, 0).unsqueeze(1));
  logits.scatter_add_(1, column, at::full({rows, 1}, -weight, logits.options()).masked_fill_(ignored.unsqueeze(1), 0));
  return sums.log().sub_(hit).masked_fill_(ignored, 0);
}

FusedLinearCrossEntropy::Results cross_entropy_blocks(const FusedLinearCrossEntropy::Arguments& in) {
  const at::Tensor &x = in.x, bias = in.b.value_or(at::Tensor());
  const at::ScalarType type = loss_type(x);
  const at::TensorOptions wide = x.options().dtype(type);
  const std::int64_t n = x.size(0), step = rows_in_block(in.w.size(1));
  // Only on the CPU is their number at hand: on other devices sums become means at the end.
  const at::Tensor counted = in.target.ge(0).sum().clamp_min(1);
  const double count = x.is_cpu() ? static_cast<double>(counted.item<std::int64_t>()) : 1.0;
  const at::Tensor loss = at::zeros({}, wide);
  at::Tensor d_x = at::empty({0}, x.options()), d_w = at::empty({0}, x.options()), d_b = at::empty({0}, x.options());
  if (in.with_gradients) {
    d_x = at::empty(x.sizes(), x.options());
    d_w = at::Tensor();
    d_b = bias.defined() ? at::zeros(bias.sizes(), wide) : d_b;
  }
  for (std::int64_t begin = 0; begin < n; begin += step) {
    const std::int64_t rows = std::min(step, n - begin);
    const at::Tensor block = x.narrow(0, begin, rows);
    const at::Tensor p = product(block, in.w).to(type);
    loss.add_(losses_and_gradient(p, bias, in.target.narrow(0, begin, rows), 1.0 / count).sum(), 1.0 / count);
    if (in.with_gradients) {
      if (bias.defined()) {
        d_b.add_(p.sum(0));
      }
      const at::Tensor d_logits = p.to(x.scalar_type());
      d_x.narrow(0, begin, rows).copy_(product(d_logits, in.w.t()));
      const at::Tensor part = product_of_columns(block, d_logits).to(type);  // many add up: in the wider type
      d_w = d_w.defined() ? d_w.add_(part) : part;
    }
  }
  if (!d_w.defined()) {
    d_w = at::zeros(in.w.sizes(), wide);
  }
  if (!x.is_cpu()) {
    const at::Tensor share = counted.to(type).reciprocal();
    for (at::Tensor sum : {loss, d_x, d_w, d_b}) {
      sum.mul_(share);
    }
  }
  return {loss, d_x, d_w.to(in.w.scalar_type()), bias.defined() ? d_b.to(bias.scalar_type()) : d_b};
}

at::Tensor cross_entropy_run(const FusedLinearCrossEntropy::Arguments& in) {
  return call<FusedLinearCrossEntropy>(in).loss;
}

[[maybe_unused]] const bool kCrossEntropyOnCpu =
    cross_entropy_backends().add({{"blocks", at::kCPU, 0, any_type}, never, cross_entropy_run});
[[maybe_unused]] const bool kCrossEntropyOnCuda =
    cross_entropy_backends().add({{"blocks", at::kCUDA, 0, any_type}, never, cross_entropy_run});

}  // namespace

at::Tensor losses_in_blocks(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias,
                            const at::Tensor& target) {
  const at::ScalarType type = loss_type(x);
  const at::Tensor losses = at::empty({x.size(0)}, x.options().dtype(type));
  const std::int64_t n = x.size(0), step = rows_in_block(w.size(1));
  for (std::int64_t begin = 0; begin < n; begin += step) {
    const std::int64_t rows = std::min(step, n - begin);
    const at::Tensor logits = product(x.narrow(0, begin, rows), w).to(type);
    losses.narrow(0, begin, rows).copy_(losses_and_gradient(logits, bias, target.narrow(0, begin, rows), 1.0));
  }
  return losses;
}

TORCH_LIBRARY_IMPL(headroom, CPU, library) {
  implement<FusedLinearCrossEntropy, cross_entropy_blocks, FusedLinearCrossEntropy::scaled>(library);
}
TORCH_LIBRARY_IMPL(headroom, CUDA, library) {
  implement<FusedLinearCrossEntropy, cross_entropy_blocks, FusedLinearCrossEntropy::scaled>(library);
}

}  // namespace headroom::ops
