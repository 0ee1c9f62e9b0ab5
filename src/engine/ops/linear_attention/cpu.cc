#include "prefix_product.h"
#include "sums.h"

namespace headroom::ops {
namespace {

std::string linear_attention_refusal(const LinearSumsInputs& in) {
  return in.carried != nullptr ? "a state that is carried on has the reference only" : "";
}

// A column of ones next to v: the sum of the weights comes along with that of the values.
LinearSums linear_sums_cpu(const LinearSumsInputs& in) {
  const at::Tensor ones = at::ones_like(in.v.narrow(3, 0, 1));
  const at::Tensor sums = prefix_product(in.q, in.k, at::cat({in.v, ones}, 3), in.causal);
  return {sums.slice(3, 0, -1), sums.select(3, -1)};
}

[[maybe_unused]] const bool kLinearAttentionOnCpu = linear_attention_backends().add(
    {{"kernels", at::kCPU, 0, float32_or_bfloat16}, linear_attention_refusal, linear_sums_cpu});

}  // namespace
}  // namespace headroom::ops
