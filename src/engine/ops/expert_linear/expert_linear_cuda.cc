// expert_linear on a GPU in torch's operators, without synchronising with the host. Assignments are sorted by matrix
// into blocks of equal size, the last block of each matrix padded, and the blocks are multiplied as a batch. The number
// of blocks is an upper bound that depends on the shapes alone.
#include <algorithm>
#include <bit>

#include "expert_linear_operator.h"

namespace headroom::ops {
namespace {

using Routed = FusedExpertLinear::Arguments;

struct RoutedBlocks {
  std::int64_t rows = 0;  // rows of a block
  at::Tensor matrix;      // [blocks], index of the block's matrix
  at::Tensor assignment;  // [blocks * rows]; 0 in padding
  at::Tensor place;       // [A], row of each assignment
};

// The average number of assignments of a matrix, rounded up to a power of two, within bounds: smaller blocks multiply
// slowly, larger ones have more padding.
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
