#include "headroom/ops/linear.h"

#include <algorithm>
#include <bit>

#include "engine/ops/shapes.h"
#include "expert_linear_operator.h"
#include "headroom/core/error.h"

namespace headroom::ops {
namespace {

void check_values(const at::Tensor& index, std::int64_t n_experts) {
  if (const at::Tensor outside = index.masked_select(index.lt(0).logical_or(index.ge(n_experts)));
      outside.numel() > 0) {
    fail("expert_linear: index must lie in [0, {}), got {}", n_experts, outside[0].item<std::int64_t>());
  }
}

// The operator's specification: a loop over the bank in differentiable operations.
at::Tensor expert_linear_reference(const ExpertLinearInputs& in) {
  if (!in.index.is_meta()) {
    check_values(in.index, in.bank.size(0));
  }
  const std::int64_t n = in.index.size(0), heads = in.index.size(1), top_k = in.index.size(2);
  const std::int64_t d_out = in.bank.size(2);
  // One row per (token, head) r; its k-th assignment has index r * top_k + k.
  const at::Tensor rows =
      in.input.dim() == 3
          ? in.input.reshape({n * heads, in.input.size(2)})
          : in.input.unsqueeze(1).expand({n, heads, in.input.size(1)}).reshape({n * heads, in.input.size(1)});
  if (rows.is_meta()) {  // no values to sort by: one matrix multiplication per assignment
    const at::Tensor all = rows.unsqueeze(1).expand({n * heads, top_k, rows.size(1)}).reshape({-1, 1, rows.size(1)});
    const at::Tensor y = all.bmm(in.bank.select(0, 0).expand({all.size(0), rows.size(1), d_out}));
    return y.view({n, heads, top_k, d_out}).sum(in.sum_heads ? at::IntArrayRef({1, 2}) : at::IntArrayRef({2}));
  }
  const at::Tensor flat_index = in.index.reshape({-1});
  at::Tensor y = at::zeros({n * heads, d_out}, rows.options());
  for (std::int64_t expert = 0; expert < in.bank.size(0); ++expert) {
    const at::Tensor assignment = flat_index.eq(expert).nonzero().squeeze(1);
    const at::Tensor row = assignment.div(top_k, "floor");
    at::Tensor product = rows.index_select(0, row).mm(in.bank.select(0, expert));
    if (in.weight) {
      product = product * in.weight->reshape({-1}).index_select(0, assignment).unsqueeze(1).to(product.scalar_type());
    }
    y = y.index_add(0, row, product);
  }
  y = y.view({n, heads, d_out});
  return in.sum_heads ? y.sum(1) : y;
}

void check(const ExpertLinearInputs& in) {
  const auto& [input, bank, index, weight, sum_heads] = in;
  if (bank.dim() != 3 || index.dim() != 3) {
    fail("expert_linear: bank must be [X, d_in, d_out] and index [N, H, K], got {} and {} dimensions", bank.dim(),
         index.dim());
  }
  const bool fits = (input.dim() == 2 || (input.dim() == 3 && input.sym_size(1) == index.sym_size(1))) &&
                    input.sym_size(0) == index.sym_size(0) && input.sym_size(-1) == bank.sym_size(1) &&
                    bank.sym_size(1) > 0;
  if (!fits) {
    fail(
        "expert_linear: input must be [N, d_in] or [N, H, d_in], index [N, H, K] and bank [X, d_in, d_out], got {}, {} "
        "and {}",
        shape_of(input), shape_of(index), shape_of(bank));
  }
  if (weight && weight->sym_sizes() != index.sym_sizes()) {
    fail("expert_linear: weight must have the shape of index, {}, got {}", shape_of(index), shape_of(*weight));
  }
  if (input.scalar_type() != bank.scalar_type()) {
    fail("expert_linear: input and bank must have one dtype, got {} and {}", toString(input.scalar_type()),
         toString(bank.scalar_type()));
  }
}

Single expert_linear_meta(const FusedExpertLinear::Arguments& in) {
  const c10::SymInt n = in.index.sym_size(0), heads = in.index.sym_size(1), d_out = in.bank.sym_size(2);
  return {in.sum_heads ? at::empty_symint({n, d_out}, in.input.options())
                       : at::empty_symint({n, heads, d_out}, in.input.options())};
}

FusedExpertLinear::Arguments expert_linear_backward_meta(const FusedExpertLinear::Backward& back) {
  FusedExpertLinear::Arguments d;
  d.input = dense_like(back.in.input);
  d.bank = dense_like(back.in.bank);
  if (back.in.weight) {
    d.weight = dense_like(*back.in.weight);
  }
  return d;
}

at::Tensor expert_linear_call(const Call<FusedExpertLinear::Arguments>& c) {
  require_type("expert_linear", "index", c.in.index, at::kLong);
  require_floating("expert_linear", "input and bank", {c.in.input, c.in.bank});
  require_floating("expert_linear", "weight", {c.in.weight.value_or(c.in.input)});
  return expert_linear(c.in, implementation_named(c.implementation));
}

}  // namespace

Backends<FusedExpertLinear::Arguments>& expert_linear_backends() {
  static Backends<FusedExpertLinear::Arguments> all("expert_linear");
  return all;
}

at::Tensor expert_linear(const ExpertLinearInputs& in, Implementation implementation) {
  check(in);
  const FusedExpertLinear::Arguments arguments{in};
  const auto* fused = expert_linear_backends().choose(implementation, in.input, arguments);
  return fused != nullptr ? fused->run(arguments) : expert_linear_reference(in);
}

TORCH_LIBRARY_FRAGMENT(headroom, library) {
  define<FusedExpertLinear>(library);
  implement<FusedExpertLinear, expert_linear_meta, expert_linear_backward_meta>(library, c10::DispatchKey::Meta);
  define_public<Call<FusedExpertLinear::Arguments>, expert_linear_call>(library, "expert_linear");
}

namespace {

using Routed = FusedExpertLinear::Arguments;

struct RoutedBlocks {
  std::int64_t rows = 0;  // rows of a block
  at::Tensor matrix;      // [blocks], index of the block's matrix
  at::Tensor assignment;  // [blocks * rows]; 0 in padding
  at::Tensor place;       // [A], row of each assignment
};

// Returns the average number of assignments per matrix, rounded up to a power of two, within bounds: smaller blocks
// multiply slowly, larger blocks have more padding.
std::int64_t rows_of_block(std::int64_t assignments, std::int64_t matrices) {
  constexpr std::int64_t kFewest = 16, kMost = 128;
  const auto average = static_cast<std::uint64_t>(std::max<std::int64_t>(assignments / matrices, 1));
  return std::clamp(static_cast<std::int64_t>(std::bit_ceil(average)), kFewest, kMost);
}

RoutedBlocks routed_blocks(const at::Tensor& index, std::int64_t matrices) {
  const std::int64_t n = index.numel(), rows = rows_of_block(n, matrices);
  const std::int64_t blocks =
      n / rows + std::min(n, matrices);  // at most one partly filled block for each matrix in use
  const auto [sorted, order] = index.sort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
  const at::Tensor bounds = at::searchsorted(sorted, at::arange(matrices + 1, index.options()));
  const at::Tensor begin = bounds.narrow(0, 0, matrices), count = bounds.narrow(0, 1, matrices) - begin;
  const at::Tensor filled = count.add(rows - 1).div(rows, "floor"), end = filled.cumsum(0);  // in blocks
  // Difference between an assignment's row in the blocks and its position in the sorted order.
  const at::Tensor shift = (end - filled) * rows - begin;
  const at::Tensor to = shift.index_select(0, sorted) + at::arange(n, index.options());
  RoutedBlocks made{.rows = rows};
  made.matrix = at::searchsorted(end, at::arange(blocks, index.options()), /*out_int32=*/false, /*right=*/true)
                    .clamp_max(matrices - 1);
  made.assignment = at::zeros({blocks * rows}, index.options()).scatter_(0, to, order);
  made.place = at::empty_like(order).scatter_(0, order, to);
  return made;
}

at::Tensor blocks_of_assignments(const Routed& in) {
  const std::int64_t n = in.index.size(0), heads = in.index.size(1), top_k = in.index.size(2);
  const std::int64_t per_row = in.input.dim() == 3 ? top_k : heads * top_k;
  const RoutedBlocks blocks = routed_blocks(in.index.reshape({-1}), in.bank.size(0));
  const at::Tensor rows = in.input.reshape({-1, in.input.size(-1)})
                              .index_select(0, blocks.assignment.div(per_row, "floor"))
                              .view({-1, blocks.rows, in.input.size(-1)});
  at::Tensor y = rows.bmm(in.bank.index_select(0, blocks.matrix))
                     .flatten(0, 1)
                     .index_select(0, blocks.place)
                     .view({n, heads, top_k, in.bank.size(2)});
  if (in.weight) {
    y = y * in.weight->unsqueeze(3).to(y.scalar_type());
  }
  return in.sum_heads ? y.sum(at::IntArrayRef{1, 2}) : y.sum(2);
}

const Registration kExpertLinearOnCuda(expert_linear_backends(),
                                       {{"blocks", at::kCUDA, 0, any_type}, never_refuses, blocks_of_assignments});

}  // namespace

}  // namespace headroom::ops
