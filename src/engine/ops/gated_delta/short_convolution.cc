#include "headroom/ops/gated_delta.h"

#include <ATen/Parallel.h>

#include "engine/kernels/cpu/attention/delta_rule.h"
#include "engine/ops/backend.h"
#include "engine/ops/operator.h"
#include "engine/ops/shapes.h"
#include "headroom/core/error.h"

namespace headroom::ops {
namespace {

struct FusedShortConvolution {
  static constexpr const char* kName = "short_convolution_fused";
  struct Arguments {
    at::Tensor x, w;
    OptionalTensor past;
    template <class V>
    void visit(V& v) {
      v("x", x, "w", w);
      v.constant("past", past);
    }
  };
  using Results = Single;
  using Backward = GradAndInputs<Arguments>;
  static Backward save(const Arguments& in, const Results& /*out*/) { return {{}, in}; }
};
using Convolution = FusedShortConvolution;

Backends<Convolution::Arguments>& short_convolution_backends() {
  static Backends<Convolution::Arguments> all("short_convolution");
  return all;
}

// The reference: one matrix multiplication per channel.
at::Tensor short_convolution_reference(const Convolution::Arguments& in) {
  const c10::SymInt b = in.x.sym_size(0), g = in.x.sym_size(1), t = in.x.sym_size(2), e = in.x.sym_size(3);
  const std::int64_t taps = in.w.size(2);
  const at::Tensor past =
      in.past ? in.past->to(in.x.scalar_type()) : at::zeros_symint({b, g, taps - 1, e}, in.x.options());
  const at::Tensor windows = at::cat({past, in.x}, 2).unfold(2, taps, 1);  // [B, G, T, e, c]
  const at::Tensor by_channel = windows.permute({1, 3, 0, 2, 4}).reshape_symint({g * e, b * t, taps});
  const at::Tensor sums = by_channel.bmm(in.w.reshape_symint({g * e, taps, 1}));
  return at::silu(sums.view_symint({g, e, b, t}).permute({2, 0, 3, 1}));
}

at::Tensor rows_in_float32(const at::Tensor& t) {
  const at::Tensor wide = t.to(at::kFloat);
  return wide.stride(-1) == 1 || wide.size(-1) == 1 ? wide : wide.contiguous();
}

// The tensors of a call, and views of one head.
struct PreparedConvolution {
  at::Tensor x, past, w;  // w [G, c, e]

  explicit PreparedConvolution(const Convolution::Arguments& in)
      : x(rows_in_float32(in.x)),
        past(in.past ? rows_in_float32(*in.past) : at::Tensor()),
        w(in.w.to(at::kFloat).transpose(1, 2).contiguous()) {}
  std::int64_t taps() const { return w.size(1); }
  std::int64_t heads() const { return x.size(0) * x.size(1); }

  kernels::ConvolutionInput head(std::int64_t index) const {
    const std::int64_t b = index / x.size(1), g = index % x.size(1);
    const auto rows = [&](const at::Tensor& t) {
      return kernels::Strided<const float>{
          t.defined() ? t.const_data_ptr<float>() + b * t.stride(0) + g * t.stride(1) : nullptr,
          t.defined() ? t.stride(2) : 0};
    };
    return {x.size(2), x.size(3), taps(), rows(x), rows(past), w.const_data_ptr<float>() + g * w.stride(0)};
  }
};

kernels::Strided<float> head_of(const at::Tensor& t, std::int64_t index) {
  return {t.mutable_data_ptr<float>() + index / t.size(1) * t.stride(0) + index % t.size(1) * t.stride(1), t.stride(2)};
}

// Calls body(head) for every head of every sequence.
template <class Body>
void for_heads(std::int64_t heads, const Body& body) {
  at::parallel_for(0, heads, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t head = begin; head < end; ++head) {
      body(head);
    }
  });
}

Single short_convolution_cpu(const Convolution::Arguments& given) {
  const PreparedConvolution in(given);
  const at::Tensor y = empty_by_token(in.x);
  for_heads(in.heads(), [&](std::int64_t head) { kernels::short_convolution(in.head(head), head_of(y, head)); });
  return {y};
}

Convolution::Arguments short_convolution_backward_cpu(const Convolution::Backward& back) {
  const PreparedConvolution in(back.in);
  const at::Tensor d_y = rows_in_float32(back.grad), d_x = empty_by_token(in.x);
  const std::int64_t b = in.x.size(0), g = in.x.size(1);
  const at::Tensor d_w = at::empty({b, g, in.taps(), in.x.size(3)}, in.x.options());
  for_heads(in.heads(), [&](std::int64_t head) {
    const kernels::Strided<float> d = head_of(d_y, head);
    kernels::short_convolution_backward(in.head(head), {d.data, d.stride}, head_of(d_x, head),
                                        d_w.mutable_data_ptr<float>() + head * in.taps() * in.x.size(3));
  });
  return {d_x.to(back.in.x.scalar_type()), d_w.sum(0).transpose(1, 2).to(back.in.w.scalar_type()).contiguous(), {}};
}

Single short_convolution_meta(const Convolution::Arguments& in) {
  return {empty_by_token(in.x).to(at::kFloat)};
}
Convolution::Arguments short_convolution_backward_meta(const Convolution::Backward& back) {
  return {empty_by_token(back.in.x), dense_like(back.in.w), {}};
}

const Registration kShortConvolutionOnCpu(short_convolution_backends(), {{"kernels", at::kCPU, 0, float32_or_bfloat16},
                                                                         never_refuses<Convolution::Arguments>,
                                                                         run<Convolution>});

void check_convolution(const ShortConvolutionInputs& in) {
  const bool fits = in.x.dim() == 4 && in.w.dim() == 3 && in.w.sym_size(0) == in.x.sym_size(1) &&
                    in.w.sym_size(1) == in.x.sym_size(3) && in.w.sym_size(2) >= 1;
  if (!fits) {
    fail("short convolution: x must be [B, G, T, e] and w [G, e, c], got {} and {}", shape_of(in.x), shape_of(in.w));
  }
  const std::vector<c10::SymInt> before = {in.x.sym_size(0), in.x.sym_size(1), in.w.sym_size(2) - 1, in.x.sym_size(3)};
  if (in.past && in.past->sym_sizes() != at::SymIntArrayRef(before)) {
    fail("short convolution: past must be {}, got {}", shape_of(before), shape_of(*in.past));
  }
}

}  // namespace

at::Tensor short_convolution(const ShortConvolutionInputs& in, Implementation implementation) {
  check_convolution(in);
  const auto* fused = short_convolution_backends().choose(implementation, in.x, {in.x, in.w, in.past});
  const bool exact = in.x.scalar_type() == at::kDouble || in.w.scalar_type() == at::kDouble;
  const auto wide = [&](const at::Tensor& t) { return fused != nullptr ? t : t.to(exact ? at::kDouble : at::kFloat); };
  const Convolution::Arguments all{wide(in.x), wide(in.w), in.past};
  return (fused != nullptr ? fused->run(all) : short_convolution_reference(all)).to(in.x.scalar_type());
}

TORCH_LIBRARY_FRAGMENT(headroom, library) {
  define<FusedShortConvolution>(library);
  implement<FusedShortConvolution, short_convolution_cpu, short_convolution_backward_cpu>(library,
                                                                                          c10::DispatchKey::CPU);
  implement<FusedShortConvolution, short_convolution_meta, short_convolution_backward_meta>(library,
                                                                                            c10::DispatchKey::Meta);
}

}  // namespace headroom::ops
