#include "headroom/ops/dropout.h"

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>

#include "headroom/core/error.h"
#include "headroom/kernels/cpu/dropout_rows.h"
#include "headroom/ops/choice.h"
#include "headroom/ops/random_bits.h"
#include "refusal.h"
#include "registered.h"

namespace headroom::ops {
namespace {

constexpr std::int64_t kElementGrain = 1 << 14;

std::int32_t threshold(double p) {
  return static_cast<std::int32_t>(std::floor(p * 0x1p31));
}

kernels::DropoutRule rule(double p, std::uint64_t seed, bool relu) {
  return {seed, threshold(p), static_cast<float>(1.0 / (1.0 - p)), relu};
}

std::int64_t n_rows(const at::Tensor& x) {
  return x.dim() == 0 ? 1 : x.size(0);
}

at::Tensor reference(const at::Tensor& x, const DropoutOptions& o) {
  const std::int64_t rows = std::max<std::int64_t>(1, n_rows(x));
  const at::Tensor bits =
      random_bits({.seed = o.seed, .first_row = o.first_row, .rows = rows, .per_row = x.numel() / rows}, x.device());
  const at::Tensor keep = bits.bitwise_right_shift(1).ge(threshold(o.p)).view(x.sizes()).to(x.scalar_type());
  return (o.relu ? x.relu() : x) * (keep * (1.0 / (1.0 - o.p)));
}

// body(type, row, first element of that row, begin, end) for stretches of elements that cover the tensor.
template <class Body>
void in_parallel(const at::Tensor& like, const Body& body) {
  const std::int64_t rows = std::max<std::int64_t>(1, n_rows(like)), per_row = like.numel() / rows;
  at::parallel_for(0, like.numel(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
    while (begin < end) {
      const std::int64_t row = begin / per_row, stop = std::min(end, (row + 1) * per_row);
      if (like.scalar_type() == at::kFloat) {
        body(float(), row, row * per_row, begin - row * per_row, stop - row * per_row);
      } else {
        body(std::uint16_t(), row, row * per_row, begin - row * per_row, stop - row * per_row);
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

at::Tensor dropout_cpu(const at::Tensor& x_in, double p, std::int64_t seed, bool relu, std::int64_t first_row) {
  const at::Tensor x = x_in.contiguous(), y = at::empty(x.sizes(), x.options());
  in_parallel(x, [&](auto type, std::int64_t row, std::int64_t from, std::int64_t begin, std::int64_t end) {
    using T = decltype(type);
    const auto of_row = rule(p, row_seed(static_cast<std::uint64_t>(seed), first_row + row), relu);
    kernels::dropout<T>(of_row, read<T>(x, from), begin, end, write<T>(y, from));
  });
  return y;
}

at::Tensor dropout_backward_cpu(const at::Tensor& grad_in, const std::optional<at::Tensor>& y, double p,
                                std::int64_t seed, bool relu, std::int64_t first_row) {
  const at::Tensor grad = grad_in.contiguous(), result = at::empty(grad.sizes(), grad.options());
  const at::Tensor given = y.value_or(at::Tensor());
  in_parallel(grad, [&](auto type, std::int64_t row, std::int64_t from, std::int64_t begin, std::int64_t end) {
    using T = decltype(type);
    const auto of_row = rule(p, row_seed(static_cast<std::uint64_t>(seed), first_row + row), relu);
    kernels::dropout_backward<T>(of_row, read<T>(grad, from), read<T>(given, from), begin, end, write<T>(result, from));
  });
  return result;
}

at::Tensor dropout_meta(const at::Tensor& x, double /*p*/, std::int64_t /*seed*/, bool /*relu*/,
                        std::int64_t /*first_row*/) {
  return at::empty(x.sizes(), x.options());
}
at::Tensor dropout_backward_meta(const at::Tensor& grad, const std::optional<at::Tensor>& /*y*/, double /*p*/,
                                 std::int64_t /*seed*/, bool /*relu*/, std::int64_t /*first_row*/) {
  return at::empty(grad.sizes(), grad.options());
}

class Dropout : public torch::autograd::Function<Dropout> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, double p, std::int64_t seed,
                            bool relu, std::int64_t first_row) {
    const at::AutoDispatchBelowADInplaceOrView below;
    static const auto op = registered<decltype(dropout_cpu)>("headroom::dropout");
    const at::Tensor y = op.call(x, p, seed, relu, first_row);
    context->save_for_backward({relu ? y : at::Tensor()});
    context->saved_data["p"] = p;
    context->saved_data["seed"] = seed;
    context->saved_data["relu"] = relu;
    context->saved_data["first_row"] = first_row;
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    const at::Tensor y = context->get_saved_variables()[0];
    static const auto op = registered<decltype(dropout_backward_cpu)>("headroom::dropout_backward");
    const at::Tensor grad = op.call(grads[0], y.defined() ? std::optional(y) : std::nullopt,
                                    context->saved_data["p"].toDouble(), context->saved_data["seed"].toInt(),
                                    context->saved_data["relu"].toBool(), context->saved_data["first_row"].toInt());
    return {grad, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

at::Tensor dropout_autograd(const at::Tensor& x, double p, std::int64_t seed, bool relu, std::int64_t first_row) {
  return Dropout::apply(x, p, seed, relu, first_row);
}

}  // namespace

at::Tensor dropout(const at::Tensor& x, const DropoutOptions& o, Implementation implementation) {
  if (!(o.p >= 0.0 && o.p < 1.0)) {
    fail("dropout: p must be at least 0 and below 1, got {}", o.p);
  }
  if (choose("dropout", implementation, cpu_float_refusal(x)) == Implementation::reference) {
    return reference(x, o);
  }
  static const auto op = registered<decltype(dropout_cpu)>("headroom::dropout");
  return op.call(x, o.p, static_cast<std::int64_t>(o.seed), o.relu, o.first_row);
}

TORCH_LIBRARY_FRAGMENT(headroom, library) {
  library.def("dropout(Tensor x, float p, int seed, bool relu, int first_row=0) -> Tensor");
  library.def("dropout_backward(Tensor grad, Tensor? y, float p, int seed, bool relu, int first_row=0) -> Tensor");
}
TORCH_LIBRARY_IMPL(headroom, CPU, library) {
  library.impl("dropout", dropout_cpu);
  library.impl("dropout_backward", dropout_backward_cpu);
}
TORCH_LIBRARY_IMPL(headroom, Meta, library) {
  library.impl("dropout", dropout_meta);
  library.impl("dropout_backward", dropout_backward_meta);
}
TORCH_LIBRARY_IMPL(headroom, Autograd, library) {
  library.impl("dropout", dropout_autograd);
}

}  // namespace headroom::ops
