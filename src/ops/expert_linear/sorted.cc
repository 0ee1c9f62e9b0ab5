#include "ops/expert_linear/sorted.h"

#include "ops/expert_linear/routing.h"

namespace headroom::ops {
namespace {

// The library makes and keeps a program for every shape of a bf16 product: rows of zeros keep the shapes few.
constexpr std::int64_t kSortedStep = 128;

struct Sorted {
  Routing routing;
  at::Tensor choice;  // [rows], the first choice where there is none
  at::Tensor empty;   // [rows, 1] where there is none
  at::Tensor place;   // [A]

  explicit Sorted(const ExpertLinearInputs& in) : routing(route(in, kSortedStep)) {
    const at::Tensor all = at::tensor(routing.choice, at::kLong);
    choice = all.clamp_min(0);
    empty = all.lt(0).unsqueeze(1);
    place = at::tensor(routing.place, at::kLong);
  }

  at::Tensor gather(const at::Tensor& rows, std::int64_t choices_per_row) const {
    return rows.index_select(0, choice.floor_divide(choices_per_row)).masked_fill_(empty, 0);
  }
  at::Tensor part(const at::Tensor& rows, std::int64_t matrix) const {
    return rows.narrow(0, routing.begin[matrix], routing.rows_of(matrix));
  }
  // Each row times its matrix, then back in the order of the choices: [A, n] in float32.
  at::Tensor products(const at::Tensor& rows, const at::Tensor& bank) const {
    const at::Tensor result = at::empty({rows.size(0), bank.size(2)}, rows.options());
    for (std::int64_t x = 0; x < bank.size(0); ++x) {
      at::Tensor to = part(result, x);
      at::mm_out(to, part(rows, x), bank.select(0, x));
    }
    return result.index_select(0, place).to(at::kFloat);
  }
  at::Tensor sum(const at::Tensor& by_choice, std::int64_t per_row) const {
    const at::Tensor weighted = routing.weight.defined() ? by_choice * routing.weight.unsqueeze(1) : by_choice;
    return weighted.view({-1, per_row, by_choice.size(1)}).sum(1);
  }
};

at::Tensor rows_of(const at::Tensor& t) {
  return t.reshape({-1, t.size(-1)});
}

}  // namespace

at::Tensor expert_linear_sorted(const ExpertLinearInputs& in) {
  const Sorted sorted(in);
  const at::Tensor rows = sorted.gather(rows_of(in.input), sorted.routing.per_input_row);
  const at::Tensor y = sorted.sum(sorted.products(rows, in.bank), sorted.routing.per_output_row);
  const std::int64_t n = in.index.size(0), d_out = in.bank.size(2);
  return (in.sum_heads ? y.view({n, d_out}) : y.view({n, in.index.size(1), d_out})).to(in.input.scalar_type());
}

ExpertGradients expert_linear_sorted_backward(const at::Tensor& grad, const ExpertLinearInputs& in) {
  const Sorted sorted(in);
  const at::Tensor g = sorted.gather(rows_of(grad), sorted.routing.per_output_row);
  const at::Tensor back = sorted.products(g, in.bank.transpose(1, 2));
  at::Tensor x = sorted.gather(rows_of(in.input), sorted.routing.per_input_row);
  ExpertGradients result;
  if (in.weight) {
    const at::Tensor by_choice = x.index_select(0, sorted.place).to(at::kFloat);
    result.weight = (by_choice * back).sum(1).view(in.index.sizes());
    x = x * sorted.routing.weight.index_select(0, sorted.choice).unsqueeze(1).to(x.scalar_type());
  }
  result.input = sorted.sum(back, sorted.routing.per_input_row).view(in.input.sizes()).to(in.input.scalar_type());
  result.bank = at::empty(in.bank.sizes(), in.bank.options());
  for (std::int64_t m = 0; m < in.bank.size(0); ++m) {
    at::Tensor to = result.bank.select(0, m);
    at::mm_out(to, sorted.part(x, m).t(), sorted.part(g, m));
  }
  return result;
}

}  // namespace headroom::ops
