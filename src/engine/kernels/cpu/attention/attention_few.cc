#include <limits>

#include "attention_block.h"

namespace headroom::kernels {
namespace {

using detail::Extent;

struct FewRoom {
  Buffer scores, positions, q, o;
};

// One query: every key and value is read where it lies.
void query_forward(const AttentionShape& s, const AttentionTensors& in, const AttentionResult& out, std::int64_t task,
                   std::int64_t row, FewRoom& room) {
  auto& [scores, positions, widened, result] = room;
  const std::int64_t b = task / s.heads, h = task % s.heads, g = h / (s.heads / s.kv_heads);
  const Extent e = detail::extent_of(s, row, 1);
  const std::int64_t n = e.visible_high(s, 0);
  const RowsOut to = out.o.rows(b, h, row);
  const Strided<float> o = detail::workplace(to, 1, s.d_value, result);
  float& log_sum = out.log_sum[task * s.queries + row];
  if (n <= 0) {
    std::fill_n(o.data, s.d_value, 0.0F);
    detail::put_back(o, 1, s.d_value, to);
    log_sum = std::numeric_limits<float>::infinity();
    return;
  }
  const float* q = detail::floats(in.q.rows(b, h, row), 1, s.d_head, widened).data;
  detail::vector_times_columns(q, s.d_head, in.k.rows(b, g, e.low), n, scores.data());
  if (in.relative()) {
    q = detail::floats(in.q_position.rows(b, h, row), 1, s.d_head, widened).data;
    detail::vector_times_columns(q, s.d_head, in.r.rows(0, h, e.first_offset(s)), n, positions.data());
  }
  float sum = 0.0F;
  log_sum = exp_row(detail::score_row(s, in, e, b, 0, positions.data()), scores.data(), &sum);
  detail::add_sink(in.sink, h, &log_sum, &sum);
  detail::vector_times_rows(scores.data(), n, in.v.rows(b, g, e.low), s.d_value, o.data);
  scaled_copy(o.data, sum > 0.0F ? 1.0F / sum : 0.0F, s.d_value, o.data);
  detail::put_back(o, 1, s.d_value, to);
}

}  // namespace

void attention_few_queries(const AttentionShape& s, const AttentionTensors& in, const AttentionResult& out,
                           std::int64_t begin, std::int64_t end) {
  FewRoom room;
  room.scores.make_room(detail::padded(s.keys));
  room.positions.make_room(in.relative() ? detail::padded(s.keys) : 0);
  for (std::int64_t task = begin; task < end; ++task) {
    for (std::int64_t row = 0; row < s.queries; ++row) {
      query_forward(s, in, out, task, row, room);
    }
  }
}

}  // namespace headroom::kernels
