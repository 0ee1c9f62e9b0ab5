#include "ops/expert_linear/blocks.h"

#include <algorithm>

#include "headroom/kernels/cpu/grouped_product.h"
#include "headroom/kernels/cpu/softmax_rows.h"
#include "headroom/kernels/cpu/tile_product.h"
#include "ops/expert_linear/routing.h"
#include "ops/tasks.h"

namespace headroom::ops {
namespace {

constexpr std::int64_t kStep = 16;           // rows a matrix gets at once: few shapes, so few micro-kernels
constexpr std::int64_t kBlockRows = 64;      // rows multiplied together
constexpr std::int64_t kOuterColumns = 256;  // of the wider side of a matrix's gradient, a task
constexpr std::int64_t kGrain = 64;          // rows put together by a task at least

struct Block {
  std::int64_t matrix, begin, rows;
};

// Decoding has a row or two for a matrix: filling up would be most of the work.
std::int64_t step_for(const ExpertLinearInputs& in) {
  return in.index.numel() < kStep * in.bank.size(0) / 4 ? 1 : kStep;
}

std::vector<Block> blocks_of(const Routing& routing) {
  std::vector<Block> blocks;
  for (std::int64_t x = 0; x + 1 < static_cast<std::int64_t>(routing.begin.size()); ++x) {
    for (std::int64_t at = routing.begin[x]; at < routing.begin[x + 1]; at += kBlockRows) {
      blocks.push_back({x, at, std::min(kBlockRows, routing.begin[x + 1] - at)});
    }
  }
  return blocks;
}

at::Tensor as_rows(const at::Tensor& t) {
  return t.reshape({-1, t.size(-1)}).contiguous();
}

kernels::ChosenRows chosen(const at::Tensor& rows, std::int64_t choices_per_row) {
  return {{rows.const_data_ptr<float>(), rows.size(1)}, choices_per_row};
}

// body(task, workspace) for each of n tasks that multiply tiles.
template <class Body>
void for_each_product(std::int64_t n, const Body& body) {
  for_each_task(
      n, [] { return kernels::GroupedWorkspace(); }, body,
      [](const kernels::GroupedWorkspace&) { kernels::tile_product_done(); });
}

// Each choice's row times its matrix, in the order of the routing: bank [X, k, n], result [routing.rows(), n].
at::Tensor sorted_products(const kernels::ChosenRows& rows, const at::Tensor& bank, const Routing& routing) {
  const std::int64_t k = bank.size(1), n = bank.size(2);
  at::Tensor result = at::empty({routing.rows(), n}, bank.options());
  const float* b = bank.const_data_ptr<float>();
  float* to = result.mutable_data_ptr<float>();
  const std::vector<Block> blocks = blocks_of(routing);
  for_each_product(static_cast<std::int64_t>(blocks.size()), [&](std::int64_t task, kernels::GroupedWorkspace& work) {
    const Block& block = blocks[task];
    kernels::grouped_product(rows, {&routing.choice[block.begin], block.rows}, k, {b + block.matrix * k * n, n},
                             to + block.begin * n, work);
  });
  return result;
}

at::Tensor transposed_bank(const at::Tensor& bank) {
  const std::int64_t k = bank.size(1), n = bank.size(2);
  at::Tensor result = at::empty({bank.size(0), n, k}, bank.options());
  const float* from = bank.const_data_ptr<float>();
  float* to = result.mutable_data_ptr<float>();
  at::parallel_for(0, bank.size(0), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t x = begin; x < end; ++x) {
      kernels::transpose({from + x * k * n, n}, k, n, {to + x * k * n, k});
    }
  });
  return result;
}

// Each matrix's gradient in tasks of some columns of its wider side, its choices in order.
at::Tensor bank_gradient(const at::Tensor& rows, const at::Tensor& grad, const at::Tensor& bank,
                         const Routing& routing) {
  const std::int64_t d_in = bank.size(1), d_out = bank.size(2);
  const bool turned = d_in > d_out;  // then the gradient's rows are on the left, and the sum comes out transposed
  const std::int64_t wide = std::max(d_in, d_out), tiles = (wide + kOuterColumns - 1) / kOuterColumns;
  const kernels::ChosenRows from = chosen(rows, routing.per_input_row), to = chosen(grad, routing.per_output_row);
  at::Tensor result = at::empty(bank.sizes(), bank.options());
  float* sums = result.mutable_data_ptr<float>();
  for_each_product(bank.size(0) * tiles, [&](std::int64_t task, kernels::GroupedWorkspace& work) {
    const std::int64_t x = task / tiles, begin = task % tiles * kOuterColumns,
                       end = std::min(wide, begin + kOuterColumns);
    float* sum = sums + x * d_in * d_out;
    const std::int64_t count = routing.rows_of(x);
    if (count == 0) {
      std::fill_n(sum + begin * std::min(d_in, d_out), (end - begin) * std::min(d_in, d_out), 0.0F);
      return;
    }
    const kernels::Choices choices{&routing.choice[routing.begin[x]], count};
    if (turned) {
      kernels::grouped_outer_product({{to, 0, d_out}, {from, begin, end}, routing.weights(), true}, choices,
                                     {sum + begin * d_out, d_out}, work);
    } else {
      kernels::grouped_outer_product({{from, 0, d_in}, {to, begin, end}, routing.weights(), false}, choices,
                                     {sum + begin, d_out}, work);
    }
  });
  return result;
}

}  // namespace

at::Tensor expert_linear_blocks(const ExpertLinearInputs& in) {
  const Routing routing = route(in, step_for(in));
  const at::Tensor rows = as_rows(in.input), bank = in.bank.contiguous();
  const std::int64_t n = in.index.size(0), heads = in.index.size(1), d_out = bank.size(2);
  const std::int64_t per_row = routing.per_output_row;
  const at::Tensor products = sorted_products(chosen(rows, routing.per_input_row), bank, routing);
  at::Tensor y = in.sum_heads ? at::empty({n, d_out}, rows.options()) : at::empty({n, heads, d_out}, rows.options());
  const float *from = products.const_data_ptr<float>(), *weight = routing.weights();
  float* to = y.mutable_data_ptr<float>();
  at::parallel_for(0, in.sum_heads ? n : n * heads, kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t first = row * per_row;
      kernels::combine_rows(from, d_out, &routing.place[first], weight == nullptr ? nullptr : weight + first, per_row,
                            to + row * d_out);
    }
  });
  return y;
}

ExpertGradients expert_linear_blocks_backward(const at::Tensor& grad_in, const ExpertLinearInputs& in) {
  const Routing routing = route(in, step_for(in));
  const at::Tensor rows = as_rows(in.input), grad = as_rows(grad_in), bank = in.bank.contiguous();
  const std::int64_t d_in = bank.size(1), per_row = routing.per_input_row;
  ExpertGradients result;
  result.bank = bank_gradient(rows, grad, bank, routing);
  const at::Tensor back =
      sorted_products(chosen(grad, routing.per_output_row), transposed_bank(bank), routing);  // [.., d_in]
  result.input = at::empty(in.input.sizes(), rows.options());
  if (in.weight) {
    result.weight = at::empty(in.index.sizes(), rows.options());
  }
  const float *from = back.const_data_ptr<float>(), *weight = routing.weights(), *x = rows.const_data_ptr<float>();
  float* to = result.input.mutable_data_ptr<float>();
  float* dots = in.weight ? result.weight.mutable_data_ptr<float>() : nullptr;
  at::parallel_for(0, rows.size(0), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t first = row * per_row;
      kernels::combine_rows(from, d_in, &routing.place[first], weight == nullptr ? nullptr : weight + first, per_row,
                            to + row * d_in);
      for (std::int64_t a = first; dots != nullptr && a < first + per_row; ++a) {
        dots[a] = kernels::dot(from + routing.place[a] * d_in, x + row * d_in, d_in);
      }
    }
  });
  return result;
}

}  // namespace headroom::ops
