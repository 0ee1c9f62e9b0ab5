#include "adaptive_softmax.h"

#include "linear.h"

namespace headroom::nn {
namespace {

at::Tensor log_softmax(const at::Tensor& logits) {
  return (logits.scalar_type() == at::kDouble ? logits : logits.to(at::kFloat)).log_softmax(-1);
}

}  // namespace

std::int64_t AdaptiveSoftmax::entry(std::int64_t i) const {
  const auto n = static_cast<std::int64_t>(cutoffs.size());
  return cutoffs[0] + (reversed ? n - i : i - 1);
}

at::Tensor AdaptiveSoftmax::band(const at::Tensor& x, std::int64_t begin, std::int64_t end,
                                 const Context& context) const {
  const at::Tensor bias = b.defined() ? b.narrow(0, begin, end - begin) : b;
  return log_softmax(linear(x, w.narrow(1, begin, end - begin), bias, context));
}

at::Tensor AdaptiveSoftmax::head(const at::Tensor& x, const Context& context) const {
  const at::Tensor matrix = at::cat({w.narrow(1, 0, cutoffs[0]), w_cluster}, 1);
  const at::Tensor bias = b.defined() ? at::cat({b.narrow(0, 0, cutoffs[0]), b_cluster}) : b;
  return log_softmax(linear(x, matrix, bias, context));
}

at::Tensor AdaptiveSoftmax::negative_log_likelihood(const at::Tensor& x, const at::Tensor& target,
                                                    const Context& context) const {
  const auto n = static_cast<std::int64_t>(cutoffs.size());
  const at::Tensor first = head(x, context);
  at::Tensor column = target.clone();  // of the head
  std::vector<at::Tensor> rows, values;
  for (std::int64_t i = 1; i <= n; ++i) {
    const std::int64_t begin = cutoffs[static_cast<std::size_t>(i - 1)];
    const std::int64_t end = i < n ? cutoffs[static_cast<std::size_t>(i)] : w.size(1);
    const at::Tensor mine = target.ge(begin).logical_and(target.lt(end)).nonzero().squeeze(1);
    column.index_fill_(0, mine, entry(i));
    if (mine.size(0) > 0) {
      const at::Tensor within = target.index_select(0, mine) - begin;
      rows.push_back(mine);
      values.push_back(band(x.index_select(0, mine), begin, end, context).gather(1, within.unsqueeze(1)).squeeze(1));
    }
  }
  at::Tensor log_p = first.gather(1, column.unsqueeze(1)).squeeze(1);
  if (!rows.empty()) {
    log_p = log_p.index_add(0, at::cat(rows), at::cat(values));
  }
  return -log_p;
}

at::Tensor AdaptiveSoftmax::log_probabilities(const at::Tensor& x, const Context& context) const {
  const auto n = static_cast<std::int64_t>(cutoffs.size());
  const at::Tensor first = head(x, context);
  std::vector<at::Tensor> parts = {first.narrow(1, 0, cutoffs[0])};
  for (std::int64_t i = 1; i <= n; ++i) {
    const std::int64_t begin = cutoffs[static_cast<std::size_t>(i - 1)];
    const std::int64_t end = i < n ? cutoffs[static_cast<std::size_t>(i)] : w.size(1);
    parts.push_back(band(x, begin, end, context) + first.narrow(1, entry(i), 1));
  }
  return at::cat(parts, 1);
}

}  // namespace headroom::nn
