// Attention kernels against the definition in plain loops, on every instruction set of this CPU.
#include <fmt/format.h>

#include <cmath>

#include "engine/kernels/cpu/attention/attention.h"
#include "kernel_testing.h"

namespace headroom::kernels {
namespace attention_kernels_test {

using testing::on_every_target;

Heads heads(const at::Tensor& t) {
  return {{t.const_data_ptr<float>(), t.stride(-2)}, t.dim() == 4 ? t.stride(0) : 0, t.stride(-3)};
}
HeadsOut heads_out(const at::Tensor& t) {
  return {{t.mutable_data_ptr<float>(), t.stride(-2)}, t.dim() == 4 ? t.stride(0) : 0, t.stride(-3)};
}

// Tensors of one attention problem, and of its gradients.
struct Tensors {
  at::Tensor q, k, v, q_position, r, sink, d_o;
};

Tensors random_tensors(const AttentionShape& s) {
  return {.q = at::randn({s.batch, s.heads, s.queries, s.d_head}),
          .k = at::randn({s.batch, s.kv_heads, s.keys, s.d_head}),
          .v = at::randn({s.batch, s.kv_heads, s.keys, s.d_value}),
          .q_position = at::randn({s.batch, s.heads, s.queries, s.d_head}),
          .r = at::randn({s.heads, s.offsets(), s.d_head}),
          .sink = at::randn({s.heads}),
          .d_o = at::randn({s.batch, s.heads, s.queries, s.d_value})};
}

double dot(const at::TensorAccessor<float, 1>& a, const at::TensorAccessor<float, 1>& b) {
  double sum = 0.0;
  for (std::int64_t c = 0; c < a.size(0); ++c) {
    sum += static_cast<double>(a[c]) * b[c];
  }
  return sum;
}

void add(double factor, const at::TensorAccessor<float, 1>& from, at::TensorAccessor<double, 1> to) {
  for (std::int64_t c = 0; c < from.size(0); ++c) {
    to[c] += factor * from[c];
  }
}

// Output and gradients by the definition. Gradients of k, v and r are per query head, d_r also per sequence.
struct Expected {
  at::Tensor o, d_q, d_k, d_v, d_q_position, d_r, d_sink;
};

Expected by_definition(const AttentionShape& s, const Tensors& t) {
  const auto zeros = [](at::IntArrayRef shape) { return at::zeros(shape, at::kDouble); };
  const Expected e{zeros(t.d_o.sizes()),
                   zeros(t.q.sizes()),
                   zeros({s.batch, s.heads, s.keys, s.d_head}),
                   zeros({s.batch, s.heads, s.keys, s.d_value}),
                   zeros(t.q.sizes()),
                   zeros({s.batch, s.heads, s.offsets(), s.d_head}),
                   zeros({s.batch, s.heads})};
  const auto q = t.q.accessor<float, 4>(), k = t.k.accessor<float, 4>(), v = t.v.accessor<float, 4>();
  const auto position = t.q_position.accessor<float, 4>(), d_o = t.d_o.accessor<float, 4>();
  const auto r = t.r.accessor<float, 3>();
  auto o = e.o.accessor<double, 4>(), d_q = e.d_q.accessor<double, 4>(), d_k = e.d_k.accessor<double, 4>(),
       d_v = e.d_v.accessor<double, 4>(), d_position = e.d_q_position.accessor<double, 4>(),
       d_r = e.d_r.accessor<double, 4>();
  for (std::int64_t b = 0; b < s.batch; ++b) {
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const std::int64_t g = h / (s.heads / s.kv_heads);
      const double sink = std::exp(t.sink[h].item<double>());
      for (std::int64_t i = 0; i < s.queries; ++i) {
        const std::int64_t here = s.keys - s.queries + i, end = s.causal ? here + 1 : s.keys;
        const std::int64_t begin = s.causal && s.window > 0 ? std::max<std::int64_t>(0, here - s.window + 1) : 0;
        std::vector<double> p(static_cast<std::size_t>(s.keys), 0.0), d_p(p);
        double sum = sink, delta = 0.0;
        for (std::int64_t j = begin; j < end; ++j) {
          p[j] =
              std::exp(s.scale * (dot(q[b][h][i], k[b][g][j]) + dot(position[b][h][i], r[h][j - here + s.keys - 1])));
          sum += p[j];
        }
        for (std::int64_t j = begin; j < end; ++j) {
          p[j] /= sum;
          add(p[j], v[b][g][j], o[b][h][i]);
          d_p[j] = dot(d_o[b][h][i], v[b][g][j]);
          delta += p[j] * d_p[j];
        }
        e.d_sink[b][h] -= sink / sum * delta;
        for (std::int64_t j = begin; j < end; ++j) {
          const double d = p[j] * (d_p[j] - delta) * s.scale;
          const std::int64_t c = j - here + s.keys - 1;
          add(d, k[b][g][j], d_q[b][h][i]);
          add(d, q[b][h][i], d_k[b][h][j]);
          add(p[j], d_o[b][h][i], d_v[b][h][j]);
          add(d, r[h][c], d_position[b][h][i]);
          add(d, position[b][h][i], d_r[b][h][c]);
        }
      }
    }
  }
  return e;
}

// Scores are sums of up to 2 e <= 48 products and gradients sums over up to 150 keys, each rounded to 2^-24.
void expect_near(const at::Tensor& got, const at::Tensor& expected, const char* what) {
  EXPECT_LE((got - expected).abs().max().item<double>(), 1e-5 * expected.abs().max().item<double>()) << what;
}

void expect_attention(const AttentionShape& s, const Tensors& t, const Expected& expected) {
  SCOPED_TRACE(fmt::format("T{} S{} e{} w{}", s.queries, s.keys, s.d_head, s.d_value));
  const AttentionTensors in{.q = heads(t.q),
                            .k = heads(t.k),
                            .v = heads(t.v),
                            .q_position = heads(t.q_position),
                            .r = heads(t.r),
                            .sink = t.sink.const_data_ptr<float>()};
  const at::Tensor o = at::empty(t.d_o.sizes()), log_sum = at::empty({s.batch, s.heads, s.queries});
  const AttentionResult out{heads_out(o), log_sum.mutable_data_ptr<float>()};
  attention_decode(s, in, out, 0, s.batch * s.heads);
  expect_near(o, expected.o, "decode path");
  o.fill_(NAN);
  attention_forward(s, in, out, 0, s.batch * s.heads);
  expect_near(o, expected.o, "o");
  const at::Tensor d_q = at::empty(t.q.sizes()), d_k = at::empty(expected.d_k.sizes()),
                   d_v = at::empty(expected.d_v.sizes()), d_position = at::empty(t.q.sizes()),
                   d_r = at::empty(expected.d_r.sizes()), d_sink = at::empty({s.batch, s.heads});
  attention_backward(s, in,
                     {.d_o = heads(t.d_o),
                      .o = heads(o),
                      .log_sum = log_sum.const_data_ptr<float>(),
                      .d_q = heads_out(d_q),
                      .d_q_position = heads_out(d_position),
                      .d_keys = {heads_out(d_k)},
                      .d_v = heads_out(d_v),
                      .d_r = heads_out(d_r),
                      .d_sink = d_sink.mutable_data_ptr<float>()},
                     0, s.batch * s.heads);
  expect_near(d_q, expected.d_q, "d_q");
  expect_near(d_k, expected.d_k, "d_k");
  expect_near(d_v, expected.d_v, "d_v");
  expect_near(d_position, expected.d_q_position, "d_q_position");
  expect_near(d_r, expected.d_r, "d_r");
  expect_near(d_sink, expected.d_sink, "d_sink");
}

TEST(AttentionKernels, EqualTheDefinition) {
  at::manual_seed(13);
  for (const AttentionShape& s :
       {AttentionShape{1, 1, 1, 1, 1, 1, 1, true, 0, 0.7F}, AttentionShape{2, 4, 2, 3, 19, 5, 7, true, 0, 0.3F},
        AttentionShape{1, 2, 1, 70, 131, 24, 13, true, 0, 0.2F},
        AttentionShape{1, 2, 2, 67, 97, 17, 17, true, 29, 0.2F},
        AttentionShape{2, 3, 3, 9, 66, 11, 3, false, 0, 0.3F}}) {
    const Tensors t = random_tensors(s);
    const Expected expected = by_definition(s, t);
    on_every_target([&] { expect_attention(s, t, expected); });
  }
}

}  // namespace attention_kernels_test
}  // namespace headroom::kernels
