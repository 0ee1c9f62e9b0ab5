#include "prefix_product.h"

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>

#include "headroom/kernels/cpu/prefix_product.h"
#include "headroom/kernels/cpu/tile_product.h"
#include "heads_on_cpu.h"

namespace headroom::ops {
namespace {

using kernels::Visible;

std::int64_t heads_of(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) {
  return std::max({a.size(1), b.size(1), c.size(1)});
}

at::Tensor prefix_product_cpu(const at::Tensor& a_in, const at::Tensor& b_in, const at::Tensor& c_in,
                              std::int64_t visible) {
  const at::Tensor a = prepared(a_in), b = prepared(b_in), c = prepared(c_in);
  const std::int64_t heads = heads_of(a, b, c);
  const kernels::PrefixProduct shape{a.size(2), b.size(2), a.size(3), c.size(3), static_cast<Visible>(visible)};
  const at::Tensor y = at::empty({a.size(0), heads, shape.rows, shape.d_value}, a.options());
  const auto from = [&](const at::Tensor& t, std::int64_t batch, std::int64_t h) {
    const auto all = view<const float>(t);
    return kernels::Strided<const float>{all.at(batch, h / (heads / t.size(1))), all.row};
  };
  at::parallel_for(0, a.size(0) * heads, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t batch = task / heads, h = task % heads;
      kernels::prefix_product(shape, from(a, batch, h), from(b, batch, h), from(c, batch, h),
                              {y.mutable_data_ptr<float>() + task * shape.rows * shape.d_value, shape.d_value});
    }
    kernels::tile_product_done();
  });
  return y;
}

at::Tensor prefix_product_meta(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c,
                               std::int64_t /*visible*/) {
  return at::empty({a.size(0), heads_of(a, b, c), a.size(2), c.size(3)}, a.options());
}

at::Tensor call(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, Visible visible) {
  static const auto op = registered<decltype(prefix_product_cpu)>("headroom::prefix_product");
  return op.call(a, b, c, static_cast<std::int64_t>(visible));
}

// Every gradient is such a product again, those of b and c with the visibility seen from the other side.
class Product : public torch::autograd::Function<Product> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& a, const at::Tensor& b,
                            const at::Tensor& c, std::int64_t visible) {
    const at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({a, b, c});
    context->saved_data["visible"] = visible;
    return call(a, b, c, static_cast<Visible>(visible));
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &g = grads[0], &a = saved[0], &b = saved[1], &c = saved[2];
    const auto visible = static_cast<Visible>(context->saved_data["visible"].toInt());
    const Visible back = visible == Visible::all       ? Visible::all
                         : visible == Visible::earlier ? Visible::later
                                                       : Visible::earlier;
    return {per_group(call(g, c, b, visible), a), per_group(call(c, g, a, back), b), per_group(call(b, a, g, back), c),
            at::Tensor()};
  }
};

at::Tensor prefix_product_autograd(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c,
                                   std::int64_t visible) {
  return Product::apply(a, b, c, visible);
}

}  // namespace

at::Tensor prefix_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, bool causal) {
  return call(a, b, c, causal ? Visible::earlier : Visible::all);
}

TORCH_LIBRARY_FRAGMENT(headroom, library) {
  library.def("prefix_product(Tensor a, Tensor b, Tensor c, int visible) -> Tensor");
}
TORCH_LIBRARY_IMPL(headroom, CPU, library) {
  library.impl("prefix_product", prefix_product_cpu);
}
TORCH_LIBRARY_IMPL(headroom, Meta, library) {
  library.impl("prefix_product", prefix_product_meta);
}
TORCH_LIBRARY_IMPL(headroom, Autograd, library) {
  library.impl("prefix_product", prefix_product_autograd);
}

}  // namespace headroom::ops
