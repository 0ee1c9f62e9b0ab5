#include "reference.h"

namespace headroom::ops {

at::Tensor expert_linear_reference(const ExpertLinearInputs& in) {
  const std::int64_t n = in.index.size(0), heads = in.index.size(1), choices = in.index.size(2);
  const std::int64_t d_out = in.bank.size(2);
  // One row a (token, head); a choice c of row r is at r * choices + c.
  const at::Tensor rows = in.input.dim() == 3
                              ? in.input.reshape({n * heads, in.input.size(2)})
                              : in.input.unsqueeze(1).expand({n, heads, in.input.size(1)}).reshape({n * heads, -1});
  const at::Tensor flat_index = in.index.reshape({-1});
  at::Tensor y = at::zeros({n * heads, d_out}, rows.options());
  for (std::int64_t expert = 0; expert < in.bank.size(0); ++expert) {
    const at::Tensor chosen = flat_index.eq(expert).nonzero().squeeze(1);
    const at::Tensor row = chosen.div(choices, "floor");
    at::Tensor product = rows.index_select(0, row).mm(in.bank.select(0, expert));
    if (in.weight) {
      product = product * in.weight->reshape({-1}).index_select(0, chosen).unsqueeze(1).to(product.scalar_type());
    }
    y = y.index_add(0, row, product);
  }
  y = y.view({n, heads, d_out});
  return in.sum_heads ? y.sum(1) : y;
}

}  // namespace headroom::ops
