// The CPU backend of expert_linear: the rows routed to an expert are gathered in blocks, multiplied and discarded, on
// all threads at once. Operands in float32 or bfloat16, accumulation in float32.
#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "engine/kernels/cpu/grouped_product.h"
#include "engine/kernels/cpu/matmul/bfloat16.h"
#include "engine/kernels/cpu/matmul/tile_product.h"
#include "engine/ops/many_rows.h"
#include "engine/ops/shapes.h"
#include "expert_linear_operator.h"
#include "foundation/core/ceil_div.h"
#include "headroom/core/error.h"
#include "headroom/ops/linear.h"

namespace headroom::ops {
namespace {

// Assignments sorted by expert. Assignment a = (n, h, k) has index (n * H + h) * K + k, so that the assignments of one
// input or output row are consecutive: row a / (assignments per row).
struct Sorting {
  std::vector<std::int64_t> begin;       // [X+1], start of each expert's assignments, multiples of the step
  std::vector<std::int64_t> assignment;  // [begin[X]], sorted; padded to the step with kernels::kNoAssignment
  std::vector<std::int64_t> place;       // [A], position of each assignment in the sorted list
  std::int64_t per_input_row, per_output_row;
  at::Tensor weight;  // A float32 elements; undefined: all 1

  std::int64_t rows() const { return begin.back(); }
  std::int64_t rows_of(std::int64_t matrix) const { return begin[matrix + 1] - begin[matrix]; }
  const float* weights() const { return weight.defined() ? weight.const_data_ptr<float>() : nullptr; }
};

// Sorts stably and pads each expert's rows to a multiple of `step`. Throws Error on an index outside the bank.
Sorting route(const ExpertLinearInputs& in, std::int64_t step) {
  const at::Tensor index = in.index.contiguous();
  const std::int64_t n_experts = in.bank.size(0), heads = index.size(1), top_k = index.size(2), total = index.numel();
  const std::int64_t* expert = index.const_data_ptr<std::int64_t>();
  std::vector<std::int64_t> next(static_cast<std::size_t>(n_experts), 0);
  for (std::int64_t a = 0; a < total; ++a) {
    if (expert[a] < 0 || expert[a] >= n_experts) {
      fail("expert_linear: index must lie in [0, {}), got {}", n_experts, expert[a]);
    }
    ++next[expert[a]];
  }
  Sorting routing;
  routing.per_input_row = in.input.dim() == 3 ? top_k : heads * top_k;
  routing.per_output_row = in.sum_heads ? heads * top_k : top_k;
  routing.begin.push_back(0);
  for (std::int64_t& count : next) {
    const std::int64_t begin = routing.begin.back();
    routing.begin.push_back(begin + round_up(count, step));
    count = begin;
  }
  routing.assignment.assign(static_cast<std::size_t>(routing.rows()), kernels::kNoAssignment);
  routing.place.resize(static_cast<std::size_t>(total));
  for (std::int64_t a = 0; a < total; ++a) {
    routing.place[a] = next[expert[a]]++;
    routing.assignment[routing.place[a]] = a;
  }
  if (in.weight) {
    routing.weight = in_type(in.weight->detach(), at::kFloat).contiguous();
  }
  return routing;
}

struct ExpertGradients {
  at::Tensor input, bank;  // of the inputs' dtype
  at::Tensor weight;       // float32; undefined without weights
};

constexpr std::int64_t kStep = 16;           // each expert's rows are padded to a multiple of it: few micro-kernels
constexpr std::int64_t kBlockRows = 64;      // rows multiplied together
constexpr std::int64_t kOuterColumns = 256;  // columns of a matrix gradient's wider side in one task
constexpr std::int64_t kGrain = 64;          // minimum number of rows per thread in combine_rows()

struct RowBlock {
  std::int64_t matrix, begin, rows;
};

// The decode path needs no padding: an expert has only a row or two.
std::int64_t step_for(const ExpertLinearInputs& in) {
  return in.index.numel() < kStep * in.bank.size(0) / 4 && !ManyRows::active() ? 1 : kStep;
}

std::vector<RowBlock> blocks_of(const Sorting& routing) {
  std::vector<RowBlock> blocks;
  for (std::int64_t x = 0; x + 1 < static_cast<std::int64_t>(routing.begin.size()); ++x) {
    for (std::int64_t at = routing.begin[x]; at < routing.begin[x + 1]; at += kBlockRows) {
      blocks.push_back({x, at, std::min(kBlockRows, routing.begin[x + 1] - at)});
    }
  }
  return blocks;
}

at::Tensor as_rows(const at::Tensor& t) {
  return reshaped(t, {-1, t.size(-1)}).contiguous();
}

template <class T>
kernels::RoutedRows<T> routed_rows(const at::Tensor& rows, std::int64_t assignments_per_row) {
  return {{rows.const_data_ptr<T>(), rows.size(1)}, assignments_per_row};
}

at::TensorOptions single(const at::Tensor& t) {
  return t.options().dtype(at::kFloat);
}

// Calls body(task, workspace) for each task in [0, n). Each thread takes the next free task, so results must not depend
// on which thread computes a task. Calls tile_product_done() at the end.
template <class Body>
void for_each_product(std::int64_t n, const Body& body) {
  std::atomic<std::int64_t> next{0};
  const std::int64_t threads = std::min<std::int64_t>(n, at::get_num_threads());
  at::parallel_for(0, threads, 1, [&](std::int64_t /*begin*/, std::int64_t /*end*/) {
    kernels::GroupedWorkspace work;
    for (std::int64_t task = next++; task < n; task = next++) {
      body(task, work);
    }
    kernels::tile_product_done();
  });
}

// The experts' matrices as right operands: row-major on the decode path and in float32, packed pairs in bfloat16.
template <class T>
struct PackedBank {
  at::Tensor data;  // [X, ...]
  std::int64_t k, n;
  bool unpacked;

  kernels::RightOperand<T> of(std::int64_t matrix) const {
    return {data.const_data_ptr<T>() + matrix * data.stride(0), k, n};
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

// `transposed`: each matrix is transposed.
template <class T>
PackedBank<T> operands(const at::Tensor& bank, bool transposed, bool unpacked) {
  const std::int64_t rows = bank.size(1), columns = bank.size(2);
  const std::int64_t k = transposed ? columns : rows, n = transposed ? rows : columns;
  constexpr bool kPaired = std::is_same_v<T, kernels::BFloat16>;
  if (unpacked || (!kPaired && !transposed)) {
    return {transposed ? bank.transpose(1, 2).contiguous() : bank, k, n, unpacked};
  }
  const std::int64_t size = (kPaired ? kernels::padded_depth(k) : k) * n;
  PackedBank<T> result{at::empty({bank.size(0), size}, bank.options()), k, n, unpacked};
  const T* from = bank.const_data_ptr<T>();
  T* to = result.data.template mutable_data_ptr<T>();
  for_each_matrix(bank, [&](std::int64_t x) {
    const kernels::Strided<const T> matrix{from + x * rows * columns, columns};
    if constexpr (!kPaired) {
      kernels::transpose(matrix, rows, columns, {to + x * size, rows});
    } else if (transposed) {
      kernels::pack_pairs_transposed(matrix, k, n, to + x * size);
    } else {
      kernels::pack_pairs(matrix, k, n, {to + x * size, n});
    }
  });
  return result;
}

// Multiplies each assignment's row by its expert's matrix, in routing order: [routing.rows(), n], rounded to T.
template <class T>
at::Tensor sorted_products(const kernels::RoutedRows<T>& rows, const PackedBank<T>& matrices, const Sorting& routing) {
  const std::int64_t n = matrices.n;
  at::Tensor result = at::empty({routing.rows(), n}, matrices.data.options());
  T* to = result.mutable_data_ptr<T>();
  const std::vector<RowBlock> blocks = blocks_of(routing);
  for_each_product(static_cast<std::int64_t>(blocks.size()), [&](std::int64_t task, kernels::GroupedWorkspace& work) {
    const RowBlock& block = blocks[task];
    const kernels::Assignments assignments{&routing.assignment[block.begin], block.rows};
    if (matrices.unpacked) {
      kernels::grouped_gemv(rows, assignments, matrices.of(block.matrix), to + block.begin * n, work);
    } else {
      kernels::grouped_product(rows, assignments, matrices.of(block.matrix), to + block.begin * n, work);
    }
  });
  return result;
}

// Gradients of the matrices. A task computes some columns of a matrix's wider side, summing its assignments in order.
template <class T>
at::Tensor bank_gradient(const at::Tensor& rows, const at::Tensor& grad, const at::Tensor& bank,
                         const Sorting& routing) {
  const std::int64_t d_in = bank.size(1), d_out = bank.size(2);
  const bool transposed = d_in > d_out;  // output gradient on the left, sum stored transposed
  const std::int64_t wide = std::max(d_in, d_out), tiles = ceil_div(wide, kOuterColumns);
  const kernels::RoutedRows<T> from = routed_rows<T>(rows, routing.per_input_row),
                               to = routed_rows<T>(grad, routing.per_output_row);
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
    const kernels::Assignments assignments{&routing.assignment[routing.begin[x]], count};
    if (transposed) {
      kernels::grouped_outer_product<T>({{to, 0, d_out}, {from, begin, end}, routing.weights(), true}, assignments,
                                        {sum + begin * d_out, d_out}, work);
    } else {
      kernels::grouped_outer_product<T>({{from, 0, d_in}, {to, begin, end}, routing.weights(), false}, assignments,
                                        {sum + begin, d_out}, work);
    }
  });
  return result;
}

template <class T>
at::Tensor forward(const ExpertLinearInputs& in, bool batch_invariant) {
  const std::int64_t step = batch_invariant ? 1 : step_for(in);
  const Sorting routing = route(in, step);
  const at::Tensor rows = as_rows(in.input), bank = in.bank.contiguous();
  const std::int64_t n = in.index.size(0), heads = in.index.size(1), d_out = bank.size(2);
  const std::int64_t per_row = routing.per_output_row;
  const at::Tensor products =
      sorted_products(routed_rows<T>(rows, routing.per_input_row), operands<T>(bank, false, step == 1), routing);
  at::Tensor y = in.sum_heads ? at::empty({n, d_out}, rows.options()) : at::empty({n, heads, d_out}, rows.options());
  const T* from = products.const_data_ptr<T>();
  const float* weight = routing.weights();
  T* to = y.mutable_data_ptr<T>();
  at::parallel_for(0, in.sum_heads ? n : n * heads, kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t first = row * per_row;
      kernels::combine_rows(
          {{from, d_out}, d_out, &routing.place[first], weight == nullptr ? nullptr : weight + first, per_row},
          {to + row * d_out, d_out});
    }
  });
  return y;
}

template <class T>
ExpertGradients backward(const at::Tensor& grad_in, const ExpertLinearInputs& in) {
  const std::int64_t step = step_for(in);
  const Sorting routing = route(in, step);
  const at::Tensor rows = as_rows(in.input), grad = as_rows(grad_in), bank = in.bank.contiguous();
  const std::int64_t d_in = bank.size(1), per_row = routing.per_input_row;
  ExpertGradients result;
  result.bank = bank_gradient<T>(rows, grad, bank, routing).to(bank.scalar_type());
  const at::Tensor back =  // [.., d_in]
      sorted_products(routed_rows<T>(grad, routing.per_output_row), operands<T>(bank, true, step == 1), routing);
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
      const kernels::PlacedRows placed{
          {from, d_in}, d_in, &routing.place[first], weight == nullptr ? nullptr : weight + first, per_row};
      kernels::combine_rows(placed, {to + row * d_in, d_in});
      if (dots != nullptr) {
        kernels::dot_rows(placed, {x + row * d_in, d_in}, dots + first);
      }
    }
  });
  return result;
}

at::Tensor expert_linear_blocks(const ExpertLinearInputs& in, bool batch_invariant = false) {
  return in.input.scalar_type() == at::kFloat ? forward<float>(in, batch_invariant)
                                              : forward<kernels::BFloat16>(in, batch_invariant);
}

ExpertGradients expert_linear_blocks_backward(const at::Tensor& grad, const ExpertLinearInputs& in) {
  return in.input.scalar_type() == at::kFloat ? backward<float>(grad, in) : backward<kernels::BFloat16>(grad, in);
}

// Converts bfloat16 to float32 on CPUs that do not multiply bfloat16 faster.
ExpertLinearInputs compute_inputs(const ExpertLinearInputs& in) {
  if (in.input.scalar_type() == at::kFloat || kernels::has_fast_bfloat16()) {
    return in;
  }
  return {in.input.to(at::kFloat), in.bank.to(at::kFloat), in.index, in.weight, in.sum_heads};
}

Single expert_linear_cpu(const FusedExpertLinear::Arguments& in) {
  return {expert_linear_blocks(compute_inputs(in)).to(in.input.scalar_type())};
}

FusedExpertLinear::Arguments expert_linear_backward_cpu(const FusedExpertLinear::Backward& back) {
  const FusedExpertLinear::Arguments& in = back.in;
  const ExpertLinearInputs data = compute_inputs(in);
  const ExpertGradients found = expert_linear_blocks_backward(back.grad.to(data.input.scalar_type()), data);
  FusedExpertLinear::Arguments d;
  d.input = found.input.to(in.input.scalar_type());
  d.bank = found.bank.to(in.bank.scalar_type());
  if (in.weight) {
    d.weight = found.weight.to(in.weight->scalar_type());
  }
  return d;
}

const Registration kExpertLinearOnCpu(expert_linear_backends(), {{"kernels", at::kCPU, 0, float32_or_bfloat16},
                                                                 never_refuses,
                                                                 run<FusedExpertLinear>});

}  // namespace

at::Tensor expert_matmul_batch_invariant(const ExpertLinearInputs& in) {
  return in_type(expert_linear_blocks(compute_inputs(in), /*batch_invariant=*/true), in.input.scalar_type());
}

TORCH_LIBRARY_FRAGMENT(headroom, library) {
  implement<FusedExpertLinear, expert_linear_cpu, expert_linear_backward_cpu>(library, c10::DispatchKey::CPU);
}

}  // namespace headroom::ops
