#include <cstdlib>
#include <string_view>

#include "headroom/core/system.h"
#include "ops/backend.h"
#include "ops/expert_linear/blocks.h"
#include "ops/expert_linear/operator.h"
#include "ops/expert_linear/sorted.h"
#include "ops/float_on_cpu.h"

namespace headroom::ops {
namespace {

// bf16 products are worth sorting all rows for where the CPU has tiles for them; elsewhere blocks in float32 are faster
// and take less memory. HEADROOM_EXPERT_LINEAR=sorted|blocks decides instead.
bool sorts_bf16() {
  static const bool kSorts = [] {
    const char* wish = std::getenv("HEADROOM_EXPERT_LINEAR");
    return wish != nullptr ? std::string_view(wish) == "sorted" : cpu_has("amx_bf16");
  }();
  return kSorts;
}

bool in_blocks(const at::Tensor& input) {
  return input.scalar_type() == at::kFloat || !sorts_bf16();
}

ExpertLinearInputs in_float(const ExpertLinearInputs& in) {
  return {in.input.to(at::kFloat), in.bank.to(at::kFloat), in.index, in.weight, in.sum_heads};
}

Single expert_linear_cpu(const FusedExpertLinear::Arguments& in) {
  return {in_blocks(in.input) ? expert_linear_blocks(in_float(in)).to(in.input.scalar_type())
                              : expert_linear_sorted(in)};
}

FusedExpertLinear::Arguments expert_linear_backward_cpu(const FusedExpertLinear::Backward& back) {
  const FusedExpertLinear::Arguments& in = back.in;
  const ExpertGradients found = in_blocks(in.input)
                                    ? expert_linear_blocks_backward(back.grad.to(at::kFloat), in_float(in))
                                    : expert_linear_sorted_backward(back.grad, in);
  FusedExpertLinear::Arguments d;
  d.input = found.input.to(in.input.scalar_type());
  d.bank = found.bank.to(in.bank.scalar_type());
  if (in.weight) {
    d.weight = found.weight.to(in.weight->scalar_type());
  }
  return d;
}

std::string expert_linear_refusal(const FusedExpertLinear::Arguments& in) {
  return float_refusal(in.input);
}

[[maybe_unused]] const bool kExpertLinearOnCpu =
    add_backend<FusedExpertLinear::Arguments, at::Tensor>(at::kCPU, {expert_linear_refusal, run<FusedExpertLinear>});

}  // namespace

TORCH_LIBRARY_IMPL(headroom, CPU, library) {
  implement<FusedExpertLinear, expert_linear_cpu, expert_linear_backward_cpu>(library);
}

}  // namespace headroom::ops
