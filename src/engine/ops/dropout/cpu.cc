#include <ATen/Parallel.h>

#include "engine/kernels/cpu/dropout_rows.h"
#include "engine/ops/random_bits.h"
#include "operator.h"

namespace headroom::ops {
namespace {

constexpr std::int64_t kElementGrain = 1 << 14;

kernels::DropoutRule rule_of_row(const FusedDropout::Rule& rule, std::int64_t row) {
  return {row_seed(static_cast<std::uint64_t>(rule.seed), rule.first_row + row), rule.threshold(),
          static_cast<float>(1.0 / (1.0 - rule.p)), rule.relu};
}

// body(type, row, first element of that row, begin, end) for stretches of elements that cover the tensor.
template <class Body>
void in_parallel(const at::Tensor& like, const Body& body) {
  const std::int64_t rows = n_rows(like), per_row = like.numel() / rows;
  at::parallel_for(0, like.numel(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
    while (begin < end) {
      const std::int64_t row = begin / per_row, stop = std::min(end, (row + 1) * per_row);
      if (like.scalar_type() == at::kFloat) {
        body(float(), row, row * per_row, begin - row * per_row, stop - row * per_row);
      } else {
        body(c10::BFloat16(), row, row * per_row, begin - row * per_row, stop - row * per_row);
      }
      begin = stop;
    }
  });
}

template <class T>
const T* read(const at::Tensor& t, std::int64_t from) {
  return t.defined() ? static_cast<const T*>(t.const_data_ptr()) + from : nullptr;
}
template <class T>
T* write(const at::Tensor& t, std::int64_t from) {
  return static_cast<T*>(t.mutable_data_ptr()) + from;
}

Single dropout_cpu(const FusedDropout::Arguments& in) {
  const at::Tensor x = in.x.contiguous(), y = at::empty(x.sizes(), x.options());
  in_parallel(x, [&](auto type, std::int64_t row, std::int64_t from, std::int64_t begin, std::int64_t end) {
    using T = decltype(type);
    kernels::dropout<T>(rule_of_row(in.rule, row), read<T>(x, from), begin, end, write<T>(y, from));
  });
  return {y};
}

FusedDropout::Arguments dropout_backward_cpu(const FusedDropout::Backward& back) {
  const at::Tensor grad = back.grad.contiguous(), result = at::empty(grad.sizes(), grad.options());
  const at::Tensor y = back.y ? back.y->contiguous() : at::Tensor();
  in_parallel(grad, [&](auto type, std::int64_t row, std::int64_t from, std::int64_t begin, std::int64_t end) {
    using T = decltype(type);
    kernels::dropout_backward<T>(rule_of_row(back.rule, row), read<T>(grad, from), read<T>(y, from), begin, end,
                                 write<T>(result, from));
  });
  return {result, {}};
}

[[maybe_unused]] const bool kDropoutOnCpu =
    dropout_backends().add({{"kernels", at::kCPU, 0, float32_or_bfloat16}, never, run<FusedDropout>});

}  // namespace

TORCH_LIBRARY_IMPL(headroom, CPU, library) {
  implement<FusedDropout, dropout_cpu, dropout_backward_cpu>(library);
}

}  // namespace headroom::ops
