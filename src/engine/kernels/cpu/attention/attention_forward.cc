#include "attention_block.h"

namespace headroom::kernels {

void attention_forward(const AttentionShape& s, const AttentionTensors& in, const AttentionResult& out,
                       std::int64_t begin, std::int64_t end) {
  const std::int64_t most = detail::padded(s.keys);
  Buffer scores(detail::kBlockRows * most);
  detail::KeptOperands values(s.half, 1, most, detail::row_width(s.d_value));  // [S padded, w]
  Buffer positions(in.relative() ? detail::kBlockRows * (most + 2 * detail::kColumnStep) : 0);
  Buffer room;
  detail::PackedHead head(s, in.relative());
  for (std::int64_t task = begin; task < end; ++task) {
    const std::int64_t b = task / s.heads, h = task % s.heads, g = h / (s.heads / s.kv_heads);
    head.pack(s, in, b, h);
    values.set_rows(0, in.v.rows(b, g), s.keys, s.d_value);
    for (std::int64_t row = 0; row < s.queries; row += detail::kBlockRows) {
      const detail::Extent e = detail::extent_of(s, row);
      head.scores(s, in, e, scores.data(), positions.data());
      float sums[detail::kBlockRows];
      float* log_sum = out.log_sum + task * s.queries + row;
      for (std::int64_t i = 0; i < e.rows; ++i) {
        log_sum[i] =
            exp_row(detail::score_row(s, in, e, b, i, positions.data()), scores.data() + i * e.columns, &sums[i]);
        detail::add_sink(in.sink, h, &log_sum[i], &sums[i]);
      }
      const RowsOut to = out.o.rows(b, h, row);
      const Strided<float> o = detail::workplace(to, e.rows, s.d_value, room);
      const detail::Left p = head.passing.left({scores.data(), e.columns}, e.rows, e.columns);
      detail::multiply({e.rows, s.d_value, e.columns}, p, values[0].from(e.low, 0), o);
      for (std::int64_t i = 0; i < e.rows; ++i) {
        float* o_i = o.data + i * o.stride;
        scaled_copy(o_i, sums[i] > 0.0F ? 1.0F / sums[i] : 0.0F, s.d_value, o_i);
      }
      detail::put_back(o, e.rows, s.d_value, to);
    }
  }
  tile_product_done();
}

}  // namespace headroom::kernels
