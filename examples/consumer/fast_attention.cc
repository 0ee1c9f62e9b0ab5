// Runs fused causal attention in a PyTorch program and compares it with its definition in plain tensor operations.
#include <headroom/ops/attention.h>

#include <cmath>
#include <cstdio>
#include <limits>

int main() {
  // The shape is [batch, heads, tokens, d_head]; two query heads share each key and value head.
  const at::Tensor q = at::randn({2, 8, 200, 32}).requires_grad_(true), k = at::randn({2, 4, 200, 32}),
                   v = at::randn({2, 4, 200, 32});
  const double scale = 1.0 / std::sqrt(32.0);
  const at::Tensor o =
      headroom::ops::attention({.q = q, .k = k, .v = v, .scale = scale}, headroom::Implementation::fused);
  o.sum().backward();

  const at::Tensor future = at::ones({200, 200}, at::kBool).triu(1);
  const at::Tensor score = q.detach().matmul(k.repeat_interleave(2, 1).transpose(2, 3)) * scale;
  const at::Tensor p = score.masked_fill(future, -std::numeric_limits<double>::infinity()).softmax(-1);
  const double error = (o.detach() - p.matmul(v.repeat_interleave(2, 1))).abs().max().item<double>();
  std::printf("fused attention: largest difference from its definition %.1e\n", error);
  return error < 1e-5 && q.grad().defined() ? 0 : 1;
}
