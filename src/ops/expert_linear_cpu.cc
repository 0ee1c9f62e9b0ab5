// The grouped product on the CPU: tokens are sorted by matrix, then each matrix makes one dense product with its rows.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <numeric>
#include <tuple>
#include <vector>

#include "headroom/core/error.h"
#include "headroom/kernels/cpu/rows.h"
#include "registered.h"

namespace headroom::ops {
namespace {

constexpr std::int64_t kGrain = 64;  // rows a task moves at least

// Who goes where: choices a = (n, h, k) in the order of their matrices, first come first served within one.
struct Routing {
  std::vector<std::int64_t> begin;       // [X+1] where each matrix's choices start
  std::vector<std::int64_t> input_row;   // [A] row of the input, viewed as a matrix
  std::vector<std::int64_t> output_row;  // [A] row of the output
  std::vector<std::int64_t> choice;      // [A] a itself
  std::vector<float> weight;             // [A], empty: all 1
};

Routing route(const at::Tensor& index, const std::optional<at::Tensor>& weight, std::int64_t n_matrices,
              bool input_per_head, bool sum_heads) {
  const at::Tensor flat = index.contiguous();
  const std::int64_t heads = index.size(1), choices = index.size(2), total = index.numel();
  const std::int64_t* chosen = flat.const_data_ptr<std::int64_t>();
  Routing routing;
  routing.begin.assign(static_cast<std::size_t>(n_matrices) + 1, 0);
  for (std::int64_t a = 0; a < total; ++a) {
    if (chosen[a] < 0 || chosen[a] >= n_matrices) {
      fail("expert_linear: index must lie in [0, {}), got {}", n_matrices, chosen[a]);
    }
    ++routing.begin[chosen[a] + 1];
  }
  std::partial_sum(routing.begin.begin(), routing.begin.end(), routing.begin.begin());
  std::vector<std::int64_t> next(routing.begin.begin(), routing.begin.end() - 1);
  routing.input_row.resize(total);
  routing.output_row.resize(total);
  routing.choice.resize(total);
  for (std::int64_t a = 0; a < total; ++a) {
    const std::int64_t at = next[chosen[a]]++, row = a / choices;  // row = n * H + h
    routing.choice[at] = a;
    routing.input_row[at] = input_per_head ? row : row / heads;
    routing.output_row[at] = sum_heads ? row / heads : row;
  }
  if (weight) {
    const at::Tensor values = weight->detach().to(at::kFloat).contiguous();
    const float* from = values.const_data_ptr<float>();
    routing.weight.resize(total);
    for (std::int64_t at = 0; at < total; ++at) {
      routing.weight[at] = from[routing.choice[at]];
    }
  }
  return routing;
}

const float* weights_from(const Routing& routing, std::int64_t begin) {
  return routing.weight.empty() ? nullptr : routing.weight.data() + begin;
}

// A tensor seen as rows: leading axes folded.
at::Tensor as_rows(const at::Tensor& t) {
  return t.reshape({-1, t.size(-1)}).contiguous();
}

// The library makes and keeps a program for every shape of a bf16 product: rows of zeros keep the shapes few.
template <class T>
constexpr std::int64_t kRowStep = std::is_same_v<T, c10::BFloat16> ? 128 : 1;

template <class T>
at::Tensor gather(const at::Tensor& rows, const std::int64_t* row, std::int64_t count) {
  const std::int64_t padded = (count + kRowStep<T> - 1) / kRowStep<T> * kRowStep<T>;
  at::Tensor block = at::empty({padded, rows.size(1)}, rows.options());
  block.narrow(0, count, padded - count).zero_();
  const kernels::Rows<const T> matrix{rows.const_data_ptr<T>(), rows.size(1), rows.size(1)};
  T* to = block.mutable_data_ptr<T>();
  at::parallel_for(0, count, kGrain,
                   [&](std::int64_t b, std::int64_t e) { kernels::gather_rows<T>(matrix, row, b, e, to); });
  return block;
}

bool all_differ(const std::int64_t* row, std::int64_t count) {
  for (std::int64_t i = 1; i < count; ++i) {
    if (row[i] <= row[i - 1]) {  // routing keeps them in ascending order
      return false;
    }
  }
  return true;
}

// One matrix's rows of one product may meet in an output row when heads are summed and share matrices (they do not in
// SwitchHead, where each head has its own): then a single task adds them in order.
template <class T>
void scatter_add(const at::Tensor& sum, const std::int64_t* row, const float* scale, const at::Tensor& block,
                 std::int64_t count) {
  const kernels::Rows<float> to{sum.mutable_data_ptr<float>(), sum.size(1), sum.size(1)};
  const T* from = block.const_data_ptr<T>();
  const auto add = [&](std::int64_t b, std::int64_t e) {
    kernels::scatter_add_rows<T, float>(to, row, scale, b, e, from);
  };
  if (all_differ(row, count)) {
    at::parallel_for(0, count, kGrain, add);
  } else {
    add(0, count);
  }
}

template <class T>
at::Tensor forward_as(const at::Tensor& input, const at::Tensor& bank, const Routing& routing, std::int64_t out_rows) {
  const at::Tensor rows = as_rows(input);
  at::Tensor sum = at::zeros({out_rows, bank.size(2)}, input.options().dtype(at::kFloat));
  for (std::int64_t x = 0; x < bank.size(0); ++x) {
    const std::int64_t begin = routing.begin[x], count = routing.begin[x + 1] - begin;
    if (count == 0) {
      continue;
    }
    const at::Tensor product = gather<T>(rows, &routing.input_row[begin], count).mm(bank.select(0, x));
    const std::int64_t* to = &routing.output_row[begin];
    scatter_add<T>(sum, to, weights_from(routing, begin), product, count);
  }
  return sum.to(input.scalar_type());
}

at::Tensor expert_linear_cpu(const at::Tensor& input, const at::Tensor& bank, const at::Tensor& index,
                             const std::optional<at::Tensor>& weight, bool sum_heads) {
  const std::int64_t n = index.size(0), heads = index.size(1);
  const Routing routing = route(index, weight, bank.size(0), input.dim() == 3, sum_heads);
  const std::int64_t out_rows = sum_heads ? n : n * heads;
  const at::Tensor y = input.scalar_type() == at::kFloat ? forward_as<float>(input, bank, routing, out_rows)
                                                         : forward_as<c10::BFloat16>(input, bank, routing, out_rows);
  return sum_heads ? y : y.view({n, heads, bank.size(2)});
}

template <class T>
void backward_as(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& bank, const Routing& routing,
                 const at::Tensor& grad_input, const at::Tensor& grad_bank, const at::Tensor& grad_weight) {
  const at::Tensor rows = as_rows(input), grad_rows = as_rows(grad);
  const std::int64_t d_in = bank.size(1);
  std::vector<float> dots;
  for (std::int64_t x = 0; x < bank.size(0); ++x) {
    const std::int64_t begin = routing.begin[x], count = routing.begin[x + 1] - begin;
    if (count == 0) {
      grad_bank.select(0, x).zero_();
      continue;
    }
    const float* weight = weights_from(routing, begin);
    const std::int64_t* from = &routing.input_row[begin];
    const at::Tensor g = gather<T>(grad_rows, &routing.output_row[begin], count);
    const at::Tensor back = g.mm(bank.select(0, x).t());
    const at::Tensor block = gather<T>(rows, from, count);
    if (weight != nullptr) {
      dots.resize(count);
      const T* a = block.const_data_ptr<T>();
      const T* b = back.const_data_ptr<T>();
      T* scaled = block.mutable_data_ptr<T>();
      float* to = grad_weight.mutable_data_ptr<float>();
      at::parallel_for(0, count, kGrain, [&](std::int64_t first, std::int64_t last) {
        kernels::dot_rows<T>(a, b, d_in, first, last, dots.data());
        kernels::scale_rows<T>(scaled, d_in, weight, first, last);
        for (std::int64_t i = first; i < last; ++i) {
          to[routing.choice[begin + i]] = dots[i];
        }
      });
    }
    scatter_add<T>(grad_input, from, weight, back, count);
    at::Tensor grad_matrix = grad_bank.select(0, x);
    at::mm_out(grad_matrix, block.t(), g);
  }
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> expert_linear_backward_cpu(
    const at::Tensor& grad, const at::Tensor& input, const at::Tensor& bank, const at::Tensor& index,
    const std::optional<at::Tensor>& weight, bool sum_heads) {
  const Routing routing = route(index, weight, bank.size(0), input.dim() == 3, sum_heads);
  const at::TensorOptions floats = input.options().dtype(at::kFloat);
  const at::Tensor grad_input = at::zeros({input.numel() / input.size(-1), input.size(-1)}, floats);
  const at::Tensor grad_bank = at::empty(bank.sizes(), bank.options());
  const at::Tensor grad_weight = weight ? at::empty(index.sizes(), floats) : at::empty({0}, floats);
  if (input.scalar_type() == at::kFloat) {
    backward_as<float>(grad, input, bank, routing, grad_input, grad_bank, grad_weight);
  } else {
    backward_as<c10::BFloat16>(grad, input, bank, routing, grad_input, grad_bank, grad_weight);
  }
  return {grad_input.view(input.sizes()).to(input.scalar_type()), grad_bank,
          weight ? grad_weight.to(weight->scalar_type()) : grad_weight};
}

at::Tensor expert_linear_meta(const at::Tensor& input, const at::Tensor& bank, const at::Tensor& index,
                              const std::optional<at::Tensor>& /*weight*/, bool sum_heads) {
  return sum_heads ? at::empty({index.size(0), bank.size(2)}, input.options())
                   : at::empty({index.size(0), index.size(1), bank.size(2)}, input.options());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> expert_linear_backward_meta(
    const at::Tensor& /*grad*/, const at::Tensor& input, const at::Tensor& bank, const at::Tensor& index,
    const std::optional<at::Tensor>& weight, bool /*sum_heads*/) {
  return {at::empty_like(input), at::empty_like(bank),
          weight ? at::empty_like(*weight) : at::empty({0}, index.options().dtype(at::kFloat))};
}

class ExpertLinear : public torch::autograd::Function<ExpertLinear> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input, const at::Tensor& bank,
                            const at::Tensor& index, const std::optional<at::Tensor>& weight, bool sum_heads) {
    const at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({input, bank, index, weight.value_or(at::Tensor())});
    context->saved_data["sum_heads"] = sum_heads;
    return call_expert_linear(input, bank, index, weight, sum_heads);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    const auto saved = context->get_saved_variables();
    const std::optional<at::Tensor> weight = saved[3].defined() ? std::optional(saved[3]) : std::nullopt;
    static const auto op = c10::Dispatcher::singleton()
                               .findSchemaOrThrow("headroom::expert_linear_backward", "")
                               .typed<decltype(expert_linear_backward_cpu)>();
    auto [input, bank, gate] =
        op.call(grads[0], saved[0], saved[1], saved[2], weight, context->saved_data["sum_heads"].toBool());
    return {input, bank, at::Tensor(), weight ? gate : at::Tensor(), at::Tensor()};
  }
};

at::Tensor expert_linear_autograd(const at::Tensor& input, const at::Tensor& bank, const at::Tensor& index,
                                  const std::optional<at::Tensor>& weight, bool sum_heads) {
  return ExpertLinear::apply(input, bank, index, weight, sum_heads);
}

}  // namespace

at::Tensor call_expert_linear(const at::Tensor& input, const at::Tensor& bank, const at::Tensor& index,
                              const std::optional<at::Tensor>& weight, bool sum_heads) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("headroom::expert_linear", "")
                             .typed<decltype(expert_linear_cpu)>();
  return op.call(input, bank, index, weight, sum_heads);
}

TORCH_LIBRARY_FRAGMENT(headroom, library) {
  library.def("expert_linear(Tensor input, Tensor bank, Tensor index, Tensor? weight, bool sum_heads) -> Tensor");
  library.def(
      "expert_linear_backward(Tensor grad, Tensor input, Tensor bank, Tensor index, Tensor? weight, bool sum_heads)"
      " -> (Tensor, Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(headroom, CPU, library) {
  library.impl("expert_linear", expert_linear_cpu);
  library.impl("expert_linear_backward", expert_linear_backward_cpu);
}
TORCH_LIBRARY_IMPL(headroom, Meta, library) {
  library.impl("expert_linear", expert_linear_meta);
  library.impl("expert_linear_backward", expert_linear_backward_meta);
}
TORCH_LIBRARY_IMPL(headroom, Autograd, library) {
  library.impl("expert_linear", expert_linear_autograd);
}

}  // namespace headroom::ops
