// Products with chosen matrices on a GPU in torch's operators, without a look at which were chosen: the host need not
// wait. Choices stand by matrix in blocks of equally many rows, the last of each matrix filled up, and the blocks are
// multiplied as a batch. How many blocks there may be follows from the shapes.
#include <algorithm>
#include <bit>

#include "operator.h"

namespace headroom::ops {
namespace {

using Chosen = FusedExpertLinear::Arguments;

struct ChosenBlocks {
  std::int64_t rows = 0;  // of a block
  at::Tensor matrix;      // [blocks] whose it is
  at::Tensor choice;      // [blocks * rows] which choice stands there; 0 where none does
  at::Tensor place;       // [A] where each choice stands
};

// Blocks as large as a matrix has choices on average, within bounds: smaller ones multiply slowly, of larger ones more
// is empty.
std::int64_t rows_of_block(std::int64_t choices, std::int64_t matrices) {
  constexpr std::int64_t kFewest = 16, kMost = 128;
  const auto average = static_cast<std::uint64_t>(std::max<std::int64_t>(choices / matrices, 1));
  return std::clamp(static_cast<std::int64_t>(std::bit_ceil(average)), kFewest, kMost);
}

ChosenBlocks chosen_blocks(const at::Tensor& index, std::int64_t matrices) {
  const std::int64_t n = index.numel(), rows = rows_of_block(n, matrices);
  const std::int64_t blocks =
      n / rows + std::min(n, matrices);  // each matrix that is chosen leaves one unfilled at most
  const auto [sorted, order] = index.sort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
  const at::Tensor bounds = at::searchsorted(sorted, at::arange(matrices + 1, index.options()));
  const at::Tensor begin = bounds.narrow(0, 0, matrices), count = bounds.narrow(0, 1, matrices) - begin;
  const at::Tensor filled = count.add(rows - 1).div(rows, "floor"), end = filled.cumsum(0);  // in blocks
  // What is to be added to a choice's place among the sorted ones for its place in the blocks.
  const at::Tensor shift = (end - filled) * rows - begin;
  const at::Tensor to = shift.index_select(0, sorted) + at::arange(n, index.options());
  ChosenBlocks made{.rows = rows};
  made.matrix = at::searchsorted(end, at::arange(blocks, index.options()), /*out_int32=*/false, /*right=*/true)
                    .clamp_max(matrices - 1);
  made.choice = at::zeros({blocks * rows}, index.options()).scatter_(0, to, order);
  made.place = at::empty_like(order).scatter_(0, order, to);
  return made;
}

at::Tensor blocks_of_choices(const Chosen& in) {
  const std::int64_t n = in.index.size(0), heads = in.index.size(1), choices = in.index.size(2);
  const std::int64_t per_row = in.input.dim() == 3 ? choices : heads * choices;
  const ChosenBlocks blocks = chosen_blocks(in.index.reshape({-1}), in.bank.size(0));
  const at::Tensor rows = in.input.reshape({-1, in.input.size(-1)})
                              .index_select(0, blocks.choice.div(per_row, "floor"))
                              .view({-1, blocks.rows, in.input.size(-1)});
  at::Tensor y = rows.bmm(in.bank.index_select(0, blocks.matrix))
                     .flatten(0, 1)
                     .index_select(0, blocks.place)
                     .view({n, heads, choices, in.bank.size(2)});
  if (in.weight) {
    y = y * in.weight->unsqueeze(3).to(y.scalar_type());
  }
  return in.sum_heads ? y.sum(at::IntArrayRef{1, 2}) : y.sum(2);
}

[[maybe_unused]] const bool kExpertLinearOnCuda =
    expert_linear_backends().add({{"blocks", at::kCUDA, 0, any_type}, never, blocks_of_choices});

}  // namespace
}  // namespace headroom::ops
