// The CPU backend of linear_attention, over a differentiable operator `prefix_product`.
#include <ATen/Parallel.h>

#include <algorithm>

#include "engine/kernels/cpu/attention/prefix_product.h"
#include "engine/kernels/cpu/matmul/bfloat16.h"
#include "engine/kernels/cpu/matmul/tile_product.h"
#include "engine/ops/heads_on_cpu.h"
#include "engine/ops/operator.h"
#include "linear_attention_operator.h"

namespace headroom::ops {
namespace {

using kernels::Visible;

struct PrefixProduct {
  static constexpr const char* kName = "prefix_product";
  struct Arguments {
    at::Tensor a, b, c;
    std::int64_t visible = 0;
    bool half = false;  // c of the first forward pass was bfloat16
    template <class V>
    void visit(V& v) {
      v("a", a);
      v("b", b);
      v("c", c);
      v.needed("visible", visible);
      v("half", half);
    }
  };
  using Results = Single;
  using Backward = GradAndInputs<Arguments>;
  static Backward save(const Arguments& in, const Results& /*out*/) { return {{}, in}; }

  // Every gradient is a prefix product again, those of b and c with the visibility transposed.
  static Arguments gradients(const Backward& back) {
    const auto& [a, b, c, seen, half] = back.in;
    const auto visible = static_cast<Visible>(seen);
    const Visible other_way = visible == Visible::all       ? Visible::all
                              : visible == Visible::earlier ? Visible::later
                                                            : Visible::earlier;
    const auto multiply = [same = half](const at::Tensor& x, const at::Tensor& y, const at::Tensor& z, Visible by) {
      return call<PrefixProduct>({x, y, z, static_cast<std::int64_t>(by), same}).result;
    };
    return {per_group(multiply(back.grad, c, b, visible), a), per_group(multiply(c, back.grad, a, other_way), b),
            per_group(multiply(b, a, back.grad, other_way), c), 0, false};
  }
};

Single prefix_product_cpu(const PrefixProduct::Arguments& in) {
  const at::Tensor a = prepared(in.a), b = prepared(in.b), c = prepared(in.c);
  const std::int64_t heads = std::max({a.size(1), b.size(1), c.size(1)});
  const kernels::PrefixProductShape shape{a.size(2),
                                          b.size(2),
                                          a.size(3),
                                          c.size(3),
                                          static_cast<Visible>(in.visible),
                                          in.half && kernels::has_fast_bfloat16()};
  const at::Tensor y = at::empty({a.size(0), heads, shape.rows, shape.d_value}, a.options().dtype(at::kFloat));
  const auto from = [&](const at::Tensor& t, std::int64_t batch, std::int64_t h) {
    return view(t).rows(batch, h / (heads / t.size(1)));
  };
  at::parallel_for(0, a.size(0) * heads, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t batch = task / heads, h = task % heads;
      kernels::prefix_product(shape, from(a, batch, h), from(b, batch, h), from(c, batch, h),
                              {y.mutable_data_ptr<float>() + task * shape.rows * shape.d_value, shape.d_value});
    }
    kernels::tile_product_done();
  });
  return {y};
}

Single prefix_product_meta(const PrefixProduct::Arguments& in) {
  const c10::SymInt heads = in.a.sym_size(1).max(in.b.sym_size(1)).max(in.c.sym_size(1));
  return {at::empty_symint({in.a.sym_size(0), heads, in.a.sym_size(2), in.c.sym_size(3)},
                           in.a.options().dtype(at::kFloat))};
}

// y [B, H, T, m], y_i = sum over visible j of (a_i . b_j) c_j, in float32; a [B, H, T, n], b [B, H or G, S, n], c [B, H
// or G, S, m]. `causal`: j <= S - T + i, else all j. If c is bfloat16 and the CPU multiplies bfloat16 faster, operands
// are rounded to bfloat16.
at::Tensor prefix_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, bool causal) {
  const Visible visible = causal ? Visible::earlier : Visible::all;
  return call<PrefixProduct>({a, b, c, static_cast<std::int64_t>(visible), c.scalar_type() == at::kBFloat16}).result;
}

std::string linear_attention_refusal(const LinearSumsInputs& in) {
  return in.carried != nullptr ? "a recurrent state is not supported" : "";
}

// A column of ones appended to v gives the sum of the weights.
LinearSums linear_sums_cpu(const LinearSumsInputs& in) {
  const at::Tensor ones = at::ones_like(in.v.narrow(3, 0, 1));
  const at::Tensor sums = prefix_product(in.q, in.k, at::cat({in.v, ones}, 3), in.causal);
  return {sums.slice(3, 0, -1), sums.select(3, -1)};
}

const Registration kLinearAttentionOnCpu(linear_attention_backends(), {{"kernels", at::kCPU, 0, float32_or_bfloat16},
                                                                       linear_attention_refusal,
                                                                       linear_sums_cpu});

}  // namespace

TORCH_LIBRARY_FRAGMENT(headroom, library) {
  define<PrefixProduct>(library);
}
TORCH_LIBRARY_IMPL(headroom, CPU, library) {
  library.impl(PrefixProduct::kName, kernel<PrefixProduct::Arguments, prefix_product_cpu>());
}
TORCH_LIBRARY_IMPL(headroom, Meta, library) {
  library.impl(PrefixProduct::kName, kernel<PrefixProduct::Arguments, prefix_product_meta>());
}

}  // namespace headroom::ops
