// The grouped product as an operator of torch's dispatcher, with its derivative.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <cstdlib>
#include <string_view>
#include <tuple>

#include "expert_linear_blocks.h"
#include "expert_linear_sorted.h"
#include "headroom/core/system.h"
#include "registered.h"

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

at::Tensor expert_linear_cpu(const at::Tensor& input, const at::Tensor& bank, const at::Tensor& index,
                             const std::optional<at::Tensor>& weight, bool sum_heads) {
  const ExpertLinearInputs in{input, bank, index, weight, sum_heads};
  return in_blocks(input) ? expert_linear_blocks(in_float(in)).to(input.scalar_type()) : expert_linear_sorted(in);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> expert_linear_backward_cpu(
    const at::Tensor& grad, const at::Tensor& input, const at::Tensor& bank, const at::Tensor& index,
    const std::optional<at::Tensor>& weight, bool sum_heads) {
  const ExpertLinearInputs in{input, bank, index, weight, sum_heads};
  const ExpertGradients result = in_blocks(input) ? expert_linear_blocks_backward(grad.to(at::kFloat), in_float(in))
                                                  : expert_linear_sorted_backward(grad, in);
  return {result.input.to(input.scalar_type()), result.bank.to(bank.scalar_type()),
          weight ? result.weight.to(weight->scalar_type()) : at::empty({0}, index.options().dtype(at::kFloat))};
}

at::Tensor expert_linear_meta(const at::Tensor& input, const at::Tensor& bank, const at::Tensor& index,
                              const std::optional<at::Tensor>& /*weight*/, bool sum_heads) {
  return sum_heads ? at::empty({index.size(0), bank.size(2)}, input.options())
                   : at::empty({index.size(0), index.size(1), bank.size(2)}, input.options());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> expert_linear_backward_meta(
    const at::Tensor& /*grad*/, const at::Tensor& input, const at::Tensor& bank, const at::Tensor& index,
    const std::optional<at::Tensor>& weight, bool /*sum_heads*/) {
  return {at::empty_like(input), at::empty_like(bank),
          weight ? at::empty_like(*weight) : at::empty({0}, index.options().dtype(at::kFloat))};
}

class ExpertLinear : public torch::autograd::Function<ExpertLinear> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input, const at::Tensor& bank,
                            const at::Tensor& index, const std::optional<at::Tensor>& weight, bool sum_heads) {
    const at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({input, bank, index, weight.value_or(at::Tensor())});
    context->saved_data["sum_heads"] = sum_heads;
    return call_expert_linear(input, bank, index, weight, sum_heads);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    const auto saved = context->get_saved_variables();
    const std::optional<at::Tensor> weight = saved[3].defined() ? std::optional(saved[3]) : std::nullopt;
    static const auto op = registered<decltype(expert_linear_backward_cpu)>("headroom::expert_linear_backward");
    auto [input, bank, gate] =
        op.call(grads[0], saved[0], saved[1], saved[2], weight, context->saved_data["sum_heads"].toBool());
    return {input, bank, at::Tensor(), weight ? gate : at::Tensor(), at::Tensor()};
  }
};

at::Tensor expert_linear_autograd(const at::Tensor& input, const at::Tensor& bank, const at::Tensor& index,
                                  const std::optional<at::Tensor>& weight, bool sum_heads) {
  return ExpertLinear::apply(input, bank, index, weight, sum_heads);
}

}  // namespace

at::Tensor call_expert_linear(const at::Tensor& input, const at::Tensor& bank, const at::Tensor& index,
                              const std::optional<at::Tensor>& weight, bool sum_heads) {
  static const auto op = registered<decltype(expert_linear_cpu)>("headroom::expert_linear");
  return op.call(input, bank, index, weight, sum_heads);
}

TORCH_LIBRARY_FRAGMENT(headroom, library) {
  library.def("expert_linear(Tensor input, Tensor bank, Tensor index, Tensor? weight, bool sum_heads) -> Tensor");
  library.def(
      "expert_linear_backward(Tensor grad, Tensor input, Tensor bank, Tensor index, Tensor? weight, bool sum_heads)"
      " -> (Tensor, Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(headroom, CPU, library) {
  library.impl("expert_linear", expert_linear_cpu);
  library.impl("expert_linear_backward", expert_linear_backward_cpu);
}
TORCH_LIBRARY_IMPL(headroom, Meta, library) {
  library.impl("expert_linear", expert_linear_meta);
  library.impl("expert_linear_backward", expert_linear_backward_meta);
}
TORCH_LIBRARY_IMPL(headroom, Autograd, library) {
  library.impl("expert_linear", expert_linear_autograd);
}

}  // namespace headroom::ops
