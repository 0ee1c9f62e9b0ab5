#include "mixture_block.h"

namespace headroom::kernels {

void mixture_attention_few_queries(const AttentionShape& s, const MixtureTensors& in, const AttentionResult& out,
                                   std::int64_t begin, std::int64_t end) {
  const std::int64_t stride = detail::padded(s.keys);
  Buffer products(static_cast<std::int64_t>(in.keys.size()) * stride);  // the first of them later the weights
  Buffer room;
  for (std::int64_t query = begin * s.queries; query < end * s.queries; ++query) {
    const std::int64_t task = query / s.queries, row = query % s.queries;
    const detail::Extent e = detail::extent_of(s, row, 1);
    const detail::QueryScores at{task / s.heads, task % s.heads, row, e.low};
    const std::int64_t n = std::max<std::int64_t>(0, e.visible_high(s, 0));
    detail::multiply_where_they_lie(s, in, at, n, {products.data(), stride});
    float most = 0.0F;
    const ScoreRow visible = detail::visible_row(s, e, 0, in.key_bias, at.b);
    const float seen =
        mixture_exp_row(visible, detail::mixture_row(s, in, at, {products.data(), stride}), &most, products.data());
    const detail::MixtureSum sum(seen, most, in.epsilon);
    const RowsOut to = out.o.rows(at.b, at.h, row);
    const Strided<float> o = detail::workplace(to, 1, s.d_value, room);
    detail::vector_times_rows(products.data(), n, in.v.rows(at.b, at.group(s), e.low), s.d_value, o.data);
    scaled_copy(o.data, sum.inverse, s.d_value, o.data);
    detail::put_back(o, 1, s.d_value, to);
    out.log_sum[query] = sum.log_sum;
  }
}

}  // namespace headroom::kernels
