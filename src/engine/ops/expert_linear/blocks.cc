#include "blocks.h"

#include <algorithm>
#include <type_traits>

#include "engine/kernels/cpu/products/grouped_product.h"
#include "engine/kernels/cpu/products/tile_product.h"
#include "engine/ops/tasks.h"
#include "routing.h"

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

template <class T>
kernels::ChosenRows<T> chosen(const at::Tensor& rows, std::int64_t choices_per_row) {
  return {{rows.const_data_ptr<T>(), rows.size(1)}, choices_per_row};
}

at::TensorOptions single(const at::Tensor& t) {
  return t.options().dtype(at::kFloat);
}

// body(task, workspace) for each of n tasks that multiply tiles.
template <class Body>
void for_each_product(std::int64_t n, const Body& body) {
  for_each_task(
      n, [] { return kernels::GroupedWorkspace(); }, body,
      [](const kernels::GroupedWorkspace&) { kernels::tile_product_done(); });
}

// The matrices as products read them: of a row or two each, as they lie; in bfloat16, in pairs of rows.
template <class T>
struct Operands {
  at::Tensor numbers;  // [X, ...]
  std::int64_t k, n;
  bool few;

  kernels::RightOperand<T> of(std::int64_t matrix) const {
    return {numbers.const_data_ptr<T>() + matrix * numbers.stride(0), k, n};
  }
};

template <class Body>
void for_each_matrix(const at::Tensor& bank, const Body& body) {
  at::parallel_for(0, bank.size(0), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t x = begin; x < end; ++x) {
      body(x);
    }
  });
}

// `transposed`: each matrix the other way round.
template <class T>
Operands<T> operands(const at::Tensor& bank, bool transposed, bool few) {
  const std::int64_t rows = bank.size(1), columns = bank.size(2);
  const std::int64_t k = transposed ? columns : rows, n = transposed ? rows : columns;
  constexpr bool kPaired = std::is_same_v<T, kernels::BFloat16>;
  if (few || (!kPaired && !transposed)) {
    return {transposed ? bank.transpose(1, 2).contiguous() : bank, k, n, few};
  }
  const std::int64_t size = (kPaired ? kernels::sum_length(k) : k) * n;
  Operands<T> result{at::empty({bank.size(0), size}, bank.options()), k, n, few};
  const T* from = bank.const_data_ptr<T>();
  T* to = result.numbers.template mutable_data_ptr<T>();
  for_each_matrix(bank, [&](std::int64_t x) {
    const kernels::Strided<const T> matrix{from + x * rows * columns, columns};
    if constexpr (!kPaired) {
      kernels::transpose(matrix, rows, columns, {to + x * size, rows});
    } else if (transposed) {
      kernels::pair_columns(matrix, k, n, to + x * size);
    } else {
      kernels::pair_rows(matrix, k, n, {to + x * size, n});
    }
  });
  return result;
}

// Each choice's row times its matrix, in the order of the routing: [routing.rows(), n], each rounded to T.
template <class T>
at::Tensor sorted_products(const kernels::ChosenRows<T>& rows, const Operands<T>& matrices, const Routing& routing) {
  const std::int64_t n = matrices.n;
  at::Tensor result = at::empty({routing.rows(), n}, matrices.numbers.options());
  T* to = result.mutable_data_ptr<T>();
  const std::vector<Block> blocks = blocks_of(routing);
  for_each_product(static_cast<std::int64_t>(blocks.size()), [&](std::int64_t task, kernels::GroupedWorkspace& work) {
    const Block& block = blocks[task];
    const kernels::Choices choices{&routing.choice[block.begin], block.rows};
    if (matrices.few) {
      kernels::few_products(rows, choices, matrices.of(block.matrix), to + block.begin * n, work);
    } else {
      kernels::grouped_product(rows, choices, matrices.of(block.matrix), to + block.begin * n, work);
    }
  });
  return result;
}

// Each matrix's gradient in tasks of some columns of its wider side, its choices in order.
template <class T>
at::Tensor bank_gradient(const at::Tensor& rows, const at::Tensor& grad, const at::Tensor& bank,
                         const Routing& routing) {
  const std::int64_t d_in = bank.size(1), d_out = bank.size(2);
  const bool turned = d_in > d_out;  // then the gradient's rows are on the left, and the sum comes out transposed
  const std::int64_t wide = std::max(d_in, d_out), tiles = (wide + kOuterColumns - 1) / kOuterColumns;
  const kernels::ChosenRows<T> from = chosen<T>(rows, routing.per_input_row),
                               to = chosen<T>(grad, routing.per_output_row);
  at::Tensor result = at::empty(bank.sizes(), single(bank));
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
      kernels::grouped_outer_product<T>({{to, 0, d_out}, {from, begin, end}, routing.weights(), true}, choices,
                                        {sum + begin * d_out, d_out}, work);
    } else {
      kernels::grouped_outer_product<T>({{from, 0, d_in}, {to, begin, end}, routing.weights(), false}, choices,
                                        {sum + begin, d_out}, work);
    }
  });
  return result;
}

template <class T>
at::Tensor forward(const ExpertLinearInputs& in, bool by_row) {
  const std::int64_t step = by_row ? 1 : step_for(in);
  const Routing routing = route(in, step);
  const at::Tensor rows = as_rows(in.input), bank = in.bank.contiguous();
  const std::int64_t n = in.index.size(0), heads = in.index.size(1), d_out = bank.size(2);
  const std::int64_t per_row = routing.per_output_row;
  const at::Tensor products =
      sorted_products(chosen<T>(rows, routing.per_input_row), operands<T>(bank, false, step == 1), routing);
  at::Tensor y = in.sum_heads ? at::empty({n, d_out}, rows.options()) : at::empty({n, heads, d_out}, rows.options());
  const T* from = products.const_data_ptr<T>();
  const float* weight = routing.weights();
  T* to = y.mutable_data_ptr<T>();
  at::parallel_for(0, in.sum_heads ? n : n * heads, kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t first = row * per_row;
      kernels::combine_rows<T>(
          {from, d_out, &routing.place[first], weight == nullptr ? nullptr : weight + first, per_row},
          to + row * d_out);
    }
  });
  return y;
}

template <class T>
ExpertGradients backward(const at::Tensor& grad_in, const ExpertLinearInputs& in) {
  const std::int64_t step = step_for(in);
  const Routing routing = route(in, step);
  const at::Tensor rows = as_rows(in.input), grad = as_rows(grad_in), bank = in.bank.contiguous();
  const std::int64_t d_in = bank.size(1), per_row = routing.per_input_row;
  ExpertGradients result;
  result.bank = bank_gradient<T>(rows, grad, bank, routing).to(bank.scalar_type());
  const at::Tensor back =  // [.., d_in]
      sorted_products(chosen<T>(grad, routing.per_output_row), operands<T>(bank, true, step == 1), routing);
  result.input = at::empty(in.input.sizes(), rows.options());
  if (in.weight) {
    result.weight = at::empty(in.index.sizes(), single(rows));
  }
  const T *from = back.const_data_ptr<T>(), *x = rows.const_data_ptr<T>();
  const float* weight = routing.weights();
  T* to = result.input.mutable_data_ptr<T>();
  float* dots = in.weight ? result.weight.mutable_data_ptr<float>() : nullptr;
  at::parallel_for(0, rows.size(0), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t first = row * per_row;
      const kernels::PlacedRows<T> placed{from, d_in, &routing.place[first],
                                          weight == nullptr ? nullptr : weight + first, per_row};
      kernels::combine_rows<T>(placed, to + row * d_in);
      if (dots != nullptr) {
        kernels::dot_rows<T>(placed, x + row * d_in, dots + first);
      }
    }
  });
  return result;
}

}  // namespace

at::Tensor expert_linear_blocks(const ExpertLinearInputs& in, bool by_row) {
  return in.input.scalar_type() == at::kFloat ? forward<float>(in, by_row) : forward<kernels::BFloat16>(in, by_row);
}

ExpertGradients expert_linear_blocks_backward(const at::Tensor& grad, const ExpertLinearInputs& in) {
  return in.input.scalar_type() == at::kFloat ? backward<float>(grad, in) : backward<kernels::BFloat16>(grad, in);
}

}  // namespace headroom::ops
