#include "routing.h"

#include "engine/kernels/cpu/products/grouped_product.h"
#include "headroom/core/error.h"

namespace headroom::ops {

Routing route(const ExpertLinearInputs& in, std::int64_t step) {
  const at::Tensor index = in.index.contiguous();
  const std::int64_t n_matrices = in.bank.size(0), heads = index.size(1), choices = index.size(2),
                     total = index.numel();
  const std::int64_t* chosen = index.const_data_ptr<std::int64_t>();
  std::vector<std::int64_t> next(static_cast<std::size_t>(n_matrices), 0);
  for (std::int64_t a = 0; a < total; ++a) {
    if (chosen[a] < 0 || chosen[a] >= n_matrices) {
      fail("expert_linear: index must lie in [0, {}), got {}", n_matrices, chosen[a]);
    }
    ++next[chosen[a]];
  }
  Routing routing;
  routing.per_input_row = in.input.dim() == 3 ? choices : heads * choices;
  routing.per_output_row = in.sum_heads ? heads * choices : choices;
  routing.begin.push_back(0);
  for (std::int64_t& count : next) {
    const std::int64_t begin = routing.begin.back();
    routing.begin.push_back(begin + (count + step - 1) / step * step);
    count = begin;
  }
  routing.choice.assign(static_cast<std::size_t>(routing.rows()), kernels::kNoChoice);
  routing.place.resize(static_cast<std::size_t>(total));
  for (std::int64_t a = 0; a < total; ++a) {
    routing.place[a] = next[chosen[a]]++;
    routing.choice[routing.place[a]] = a;
  }
  if (in.weight) {
    routing.weight = in.weight->detach().to(at::kFloat).contiguous().view({-1});
  }
  return routing;
}

}  // namespace headroom::ops
