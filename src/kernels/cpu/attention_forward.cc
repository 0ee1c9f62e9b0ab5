#include "attention_block.h"

namespace headroom::kernels {

void attention_forward(const AttentionShape& s, const AttentionTensors& in, const AttentionResult& out,
                       std::int64_t begin, std::int64_t end) {
  const std::int64_t most = detail::padded(s.keys);
  Buffer scores(detail::kBlockRows * most);
  detail::KeptOperands values(s.half, 1, most, detail::row_width(s.d_head));  // [S padded, e]
  Buffer positions(in.q_position.data == nullptr ? 0 : detail::kBlockRows * (most + 2 * detail::kColumnStep));
  detail::PackedHead head(s, in.q_position.data != nullptr);
  for (std::int64_t task = begin; task < end; ++task) {
    const std::int64_t b = task / s.heads, h = task % s.heads, g = h / (s.heads / s.kv_heads);
    head.pack(s, in, b, h);
    values.set_rows(0, {in.v.at(b, g), in.v.row}, s.keys, s.d_head);
    for (std::int64_t row = 0; row < s.queries; row += detail::kBlockRows) {
      const detail::Extent e = detail::extent_of(s, row);
      head.scores(s, in, e, scores.data(), positions.data());
      float sums[detail::kBlockRows];
      float* log_sum = out.log_sum + task * s.queries + row;
      for (std::int64_t i = 0; i < e.rows; ++i) {
        log_sum[i] =
            exp_row(detail::score_row(s, in, e, b, i, positions.data()), scores.data() + i * e.columns, &sums[i]);
      }
      float* o = out.o.at(b, h) + row * out.o.row;
      const detail::Left p = head.passing.left({scores.data(), e.columns}, e.rows, e.columns);
      detail::multiply({e.rows, s.d_head, e.columns}, p, values[0].from(e.low, 0), {o, out.o.row});
      for (std::int64_t i = 0; i < e.rows; ++i) {
        scaled_copy(o + i * out.o.row, sums[i] > 0.0F ? 1.0F / sums[i] : 0.0F, s.d_head, o + i * out.o.row);
      }
    }
  }
  tile_product_done();
}

}  // namespace headroom::kernels
