#include "headroom/ops/expert_linear.h"

#include <fmt/ranges.h>

#include "expert_linear_reference.h"
#include "headroom/core/error.h"
#include "headroom/ops/choice.h"
#include "refusal.h"
#include "registered.h"

namespace headroom::ops {
namespace {

void check(const ExpertLinearInputs& in) {
  const auto& [input, bank, index, weight, sum_heads] = in;
  if (bank.dim() != 3 || index.dim() != 3) {
    fail("expert_linear: bank must be [X, d_in, d_out] and index [N, H, K], got {} and {} axes", bank.dim(),
         index.dim());
  }
  const bool fits = (input.dim() == 2 || (input.dim() == 3 && input.size(1) == index.size(1))) &&
                    input.size(0) == index.size(0) && input.size(-1) == bank.size(1);
  if (!fits) {
    fail("expert_linear: input must be [N, d_in] or [N, H, d_in] with N={}, H={}, d_in={}, got {}", index.size(0),
         index.size(1), bank.size(1), fmt::join(input.sizes(), "x"));
  }
  if (weight && weight->sizes() != index.sizes()) {
    fail("expert_linear: weight must have the shape of index, {}, got {}", fmt::join(index.sizes(), "x"),
         fmt::join(weight->sizes(), "x"));
  }
  if (input.scalar_type() != bank.scalar_type()) {
    fail("expert_linear: input and bank must have one dtype, got {} and {}", toString(input.scalar_type()),
         toString(bank.scalar_type()));
  }
}

}  // namespace

at::Tensor expert_linear(const ExpertLinearInputs& in, Implementation implementation) {
  check(in);
  if (choose("expert_linear", implementation, cpu_float_refusal(in.input)) == Implementation::reference) {
    return expert_linear_reference(in);
  }
  return call_expert_linear(in.input, in.bank, in.index, in.weight, in.sum_heads);
}

}  // namespace headroom::ops
