#include "headroom/ops/dropout.h"

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <cmath>

#include "headroom/core/error.h"
#include "headroom/kernels/cpu/dropout_rows.h"
#include "headroom/ops/choice.h"
#include "refusal.h"
#include "registered.h"

namespace headroom::ops {
namespace {

constexpr std::int64_t kElementGrain = 1 << 14;
constexpr std::int64_t kWord = 0xFFFFFFFF;

std::int32_t threshold(double p) {
  return static_cast<std::int32_t>(std::floor(p * 0x1p31));
}

kernels::DropoutRule rule(double p, std::int64_t seed, bool relu) {
  return {static_cast<std::uint64_t>(seed), threshold(p), static_cast<float>(1.0 / (1.0 - p)), relu};
}

// The kernels' hash in 64-bit tensor arithmetic, of which the low 32 bits are kept.
at::Tensor scramble(at::Tensor x) {
  x = x.bitwise_xor(x.bitwise_right_shift(16));
  x = (x * 0x7FEB352D).bitwise_and(kWord);
  x = x.bitwise_xor(x.bitwise_right_shift(15));
  x = (x * 0x846CA68B).bitwise_and(kWord);
  return x.bitwise_xor(x.bitwise_right_shift(16));
}

at::Tensor reference(const at::Tensor& x, const DropoutOptions& o) {
  const at::Tensor place = at::arange(x.numel(), x.options().dtype(at::kLong).requires_grad(false));
  const auto step = static_cast<std::int64_t>(0x9E3779B97F4A7C15ULL);
  const at::Tensor block = place.bitwise_right_shift(32) * step + static_cast<std::int64_t>(o.seed);
  const at::Tensor low = block.bitwise_and(kWord), high = block.bitwise_right_shift(32).bitwise_and(kWord);
  const at::Tensor bits = scramble(scramble((place + low).bitwise_and(kWord)).bitwise_xor(high));
  const at::Tensor keep = bits.bitwise_right_shift(1).ge(threshold(o.p)).view(x.sizes()).to(x.scalar_type());
  return (o.relu ? x.relu() : x) * (keep * (1.0 / (1.0 - o.p)));
}

template <class Body>
void in_parallel(const at::Tensor& like, const Body& body) {
  at::parallel_for(0, like.numel(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
    if (like.scalar_type() == at::kFloat) {
      body(float(), begin, end);
    } else {
      body(std::uint16_t(), begin, end);
    }
  });
}

template <class T>
const T* read(const at::Tensor& t) {
  return t.defined() ? static_cast<const T*>(t.const_data_ptr()) : nullptr;
}
template <class T>
T* write(const at::Tensor& t) {
  return static_cast<T*>(t.mutable_data_ptr());
}

at::Tensor dropout_cpu(const at::Tensor& x_in, double p, std::int64_t seed, bool relu) {
  const at::Tensor x = x_in.contiguous(), y = at::empty(x.sizes(), x.options());
  in_parallel(x, [&](auto type, std::int64_t begin, std::int64_t end) {
    using T = decltype(type);
    kernels::dropout<T>(rule(p, seed, relu), read<T>(x), begin, end, write<T>(y));
  });
  return y;
}

at::Tensor dropout_backward_cpu(const at::Tensor& grad_in, const std::optional<at::Tensor>& y, double p,
                                std::int64_t seed, bool relu) {
  const at::Tensor grad = grad_in.contiguous(), result = at::empty(grad.sizes(), grad.options());
  const at::Tensor given = y.value_or(at::Tensor());
  in_parallel(grad, [&](auto type, std::int64_t begin, std::int64_t end) {
    using T = decltype(type);
    kernels::dropout_backward<T>(rule(p, seed, relu), read<T>(grad), read<T>(given), begin, end, write<T>(result));
  });
  return result;
}

at::Tensor dropout_meta(const at::Tensor& x, double /*p*/, std::int64_t /*seed*/, bool /*relu*/) {
  return at::empty(x.sizes(), x.options());
}
at::Tensor dropout_backward_meta(const at::Tensor& grad, const std::optional<at::Tensor>& /*y*/, double /*p*/,
                                 std::int64_t /*seed*/, bool /*relu*/) {
  return at::empty(grad.sizes(), grad.options());
}

class Dropout : public torch::autograd::Function<Dropout> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, double p, std::int64_t seed,
                            bool relu) {
    const at::AutoDispatchBelowADInplaceOrView below;
    static const auto op = registered<decltype(dropout_cpu)>("headroom::dropout");
    const at::Tensor y = op.call(x, p, seed, relu);
    context->save_for_backward({relu ? y : at::Tensor()});
    context->saved_data["p"] = p;
    context->saved_data["seed"] = seed;
    context->saved_data["relu"] = relu;
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    const at::Tensor y = context->get_saved_variables()[0];
    static const auto op = registered<decltype(dropout_backward_cpu)>("headroom::dropout_backward");
    const at::Tensor grad =
        op.call(grads[0], y.defined() ? std::optional(y) : std::nullopt, context->saved_data["p"].toDouble(),
                context->saved_data["seed"].toInt(), context->saved_data["relu"].toBool());
    return {grad, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

at::Tensor dropout_autograd(const at::Tensor& x, double p, std::int64_t seed, bool relu) {
  return Dropout::apply(x, p, seed, relu);
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
  return op.call(x, o.p, static_cast<std::int64_t>(o.seed), o.relu);
}

TORCH_LIBRARY_FRAGMENT(headroom, library) {
  library.def("dropout(Tensor x, float p, int seed, bool relu) -> Tensor");
  library.def("dropout_backward(Tensor grad, Tensor? y, float p, int seed, bool relu) -> Tensor");
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
