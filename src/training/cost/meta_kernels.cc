// Kernels of the meta device for operators that the layers use. torch has them only in Python.
#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <vector>

namespace headroom::cost {

namespace {

at::Tensor index_select(const at::Tensor& t, std::int64_t dim, const at::Tensor& index) {
  std::vector<std::int64_t> sizes = t.sizes().vec();
  sizes.at(static_cast<std::size_t>(at::maybe_wrap_dim(dim, t.dim()))) = index.numel();
  return t.new_empty(sizes);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> native_layer_norm(const at::Tensor& x, c10::SymIntArrayRef shape,
                                                                 const std::optional<at::Tensor>&,
                                                                 const std::optional<at::Tensor>&, double) {
  std::vector<std::int64_t> sizes = x.sizes().vec();
  std::fill(sizes.end() - std::ssize(shape), sizes.end(), 1);
  return {at::empty_like(x), x.new_empty(sizes), x.new_empty(sizes)};
}

std::tuple<at::Tensor, at::Tensor> log_sigmoid_forward(const at::Tensor& x) {
  return {at::empty_like(x), x.new_empty({0})};
}

// Any elementwise operator, with or without an argument for its result, which is the last one.
void elementwise(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto arguments = torch::jit::last(*stack, op.schema().arguments().size());
  const at::Tensor out =
      op.schema().is_mutable() ? arguments.back().toTensor() : arguments.front().toTensor().new_empty(0);
  std::vector<std::int64_t> sizes;
  for (std::size_t i = 0; i < arguments.size() - (op.schema().is_mutable() ? 1 : 0); ++i) {
    if (arguments[i].isTensor()) {
      sizes = at::infer_size(sizes, arguments[i].toTensor().sizes());
    }
  }
  out.resize_(sizes);
  torch::jit::drop(*stack, arguments.size());
  torch::jit::push(*stack, out);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, Meta, library) {
  library.impl("index_select", index_select);
  library.impl("native_layer_norm", native_layer_norm);
  library.impl("log_sigmoid_forward", log_sigmoid_forward);
  for (const char* name : {"abs.out", "floor_divide", "logical_and.out", "logical_not.out", "logical_or.out", "relu"}) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&elementwise>());
  }
}

}  // namespace headroom::cost
