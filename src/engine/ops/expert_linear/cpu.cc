#include "blocks.h"
#include "engine/kernels/cpu/products/bfloat16.h"
#include "operator.h"

namespace headroom::ops {
namespace {

// On CPUs that multiply bfloat16 no faster the products are those of float32.
ExpertLinearInputs operands(const ExpertLinearInputs& in) {
  if (in.input.scalar_type() == at::kFloat || kernels::multiplies_bfloat16()) {
    return in;
  }
  return {in.input.to(at::kFloat), in.bank.to(at::kFloat), in.index, in.weight, in.sum_heads};
}

Single expert_linear_cpu(const FusedExpertLinear::Arguments& in) {
  return {expert_linear_blocks(operands(in)).to(in.input.scalar_type())};
}

FusedExpertLinear::Arguments expert_linear_backward_cpu(const FusedExpertLinear::Backward& back) {
  const FusedExpertLinear::Arguments& in = back.in;
  const ExpertLinearInputs numbers = operands(in);
  const ExpertGradients found = expert_linear_blocks_backward(back.grad.to(numbers.input.scalar_type()), numbers);
  FusedExpertLinear::Arguments d;
  d.input = found.input.to(in.input.scalar_type());
  d.bank = found.bank.to(in.bank.scalar_type());
  if (in.weight) {
    d.weight = found.weight.to(in.weight->scalar_type());
  }
  return d;
}

[[maybe_unused]] const bool kExpertLinearOnCpu =
    expert_linear_backends().add({{"kernels", at::kCPU, 0, float32_or_bfloat16}, never, run<FusedExpertLinear>});

}  // namespace

at::Tensor few_expert_products(const ExpertLinearInputs& in) {
  return expert_linear_blocks(operands(in), /*by_row=*/true).to(in.input.scalar_type());
}

TORCH_LIBRARY_IMPL(headroom, CPU, library) {
  implement<FusedExpertLinear, expert_linear_cpu, expert_linear_backward_cpu>(library);
}

}  // namespace headroom::ops
