#include "attention_block.h"

namespace headroom::kernels {

void attention_forward(const AttentionShape& s, const AttentionTensors& in, const AttentionResult& out,
                       std::int64_t begin, std::int64_t end) {
  const std::int64_t most = detail::padded(s.keys);
  std::vector<float> scores(static_cast<std::size_t>(detail::kBlockRows * most));
  std::vector<float> positions(in.q_position.data == nullptr
                                   ? 0
                                   : static_cast<std::size_t>(detail::kBlockRows * (most + 2 * detail::kColumnStep)));
  std::vector<float> values(static_cast<std::size_t>(most * s.d_head));  // [S padded, e]
  detail::PackedHead head;
  for (std::int64_t task = begin; task < end; ++task) {
    const std::int64_t b = task / s.heads, h = task % s.heads, g = h / (s.heads / s.kv_heads);
    head.pack(s, in, b, h);
    const float* v = in.v.at(b, g);
    for (std::int64_t j = 0; j < s.keys; ++j) {
      std::copy_n(v + j * in.v.row, s.d_head, values.data() + j * s.d_head);
    }
    for (std::int64_t row = 0; row < s.queries; row += detail::kBlockRows) {
      const detail::Extent e = detail::extent_of(s, row);
      detail::block_scores(s, in, head, e, b, h, scores.data(), positions.data());
      float sums[detail::kBlockRows];
      float* log_sum = out.log_sum + task * s.queries + row;
      for (std::int64_t i = 0; i < e.rows; ++i) {
        log_sum[i] =
            exp_row(detail::score_row(s, in, e, b, i, positions.data()), scores.data() + i * e.columns, &sums[i]);
      }
      float* o = out.o.at(b, h) + row * out.o.row;
      tile_product({e.rows, s.d_head, e.columns, e.columns, s.d_head, out.o.row}, scores.data(),
                   values.data() + e.low * s.d_head, o);
      for (std::int64_t i = 0; i < e.rows; ++i) {
        scaled_copy(o + i * out.o.row, sums[i] > 0.0F ? 1.0F / sums[i] : 0.0F, s.d_head, o + i * out.o.row);
      }
    }
  }
  tile_product_done();
}

}  // namespace headroom::kernels
