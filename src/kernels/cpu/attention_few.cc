#include <limits>

#include "attention_block.h"
#include "headroom/kernels/cpu/vector_product.h"

namespace headroom::kernels {
namespace {

using detail::Extent;
using detail::rows_of;

struct FewRoom {
  Buffer scores, positions;
};

// One query: every key and value is read where it lies.
template <class T>
void query_forward(const AttentionShape& s, const AttentionTensorsOf<T>& in, const AttentionResult& out,
                   std::int64_t task, std::int64_t row, FewRoom& room) {
  auto& [scores, positions] = room;
  const std::int64_t b = task / s.heads, h = task % s.heads, g = h / (s.heads / s.kv_heads);
  const Extent e = detail::extent_of(s, row, 1);
  const std::int64_t n = e.visible_high(s, 0);
  float* o = out.o.at(b, h) + row * out.o.row;
  float& log_sum = out.log_sum[task * s.queries + row];
  if (n <= 0) {
    std::fill_n(o, s.d_head, 0.0F);
    log_sum = std::numeric_limits<float>::infinity();
    return;
  }
  vector_times_columns(in.q.at(b, h) + row * in.q.row, s.d_head, rows_of(in.k, b, g, e.low), 0, n, scores.data());
  if (in.q_position.data != nullptr) {
    vector_times_columns(in.q_position.at(b, h) + row * in.q_position.row, s.d_head,
                         rows_of(in.r, 0, h, e.first_offset(s)), 0, n, positions.data());
  }
  float sum = 0.0F;
  log_sum = exp_row(detail::score_row(s, in, e, b, 0, positions.data()), scores.data(), &sum);
  vector_times_rows(scores.data(), n, rows_of(in.v, b, g, e.low), 0, s.d_head, o);
  scaled_copy(o, sum > 0.0F ? 1.0F / sum : 0.0F, s.d_head, o);
}

}  // namespace

template <class T>
void attention_few_queries(const AttentionShape& s, const AttentionTensorsOf<T>& in, const AttentionResult& out,
                           std::int64_t begin, std::int64_t end) {
  FewRoom room{Buffer(detail::padded(s.keys)), Buffer(in.q_position.data == nullptr ? 0 : detail::padded(s.keys))};
  for (std::int64_t task = begin; task < end; ++task) {
    for (std::int64_t row = 0; row < s.queries; ++row) {
      query_forward(s, in, out, task, row, room);
    }
  }
}

template void attention_few_queries(const AttentionShape&, const AttentionTensorsOf<float>&, const AttentionResult&,
                                    std::int64_t, std::int64_t);
template void attention_few_queries(const AttentionShape&, const AttentionTensorsOf<BFloat16>&, const AttentionResult&,
                                    std::int64_t, std::int64_t);

}  // namespace headroom::kernels
