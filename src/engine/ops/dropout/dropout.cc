// dropout: schema, reference, CPU backend; random_bits().
#include "headroom/ops/dropout.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "engine/kernels/cpu/rows.h"
#include "engine/ops/backend.h"
#include "engine/ops/heads_on_cpu.h"
#include "engine/ops/operator.h"
#include "engine/ops/shapes.h"
#include "headroom/core/error.h"

namespace headroom::ops {
namespace {

struct FusedDropout {
  static constexpr const char* kName = "dropout_fused";
  struct Rule {
    double p = 0.0;
    std::int64_t seed = 0;
    bool relu = false;
    std::int64_t first_row = 0;
    // An element is dropped if its 31 random bits are below the threshold.
    std::int32_t threshold() const { return static_cast<std::int32_t>(std::floor(p * 0x1p31)); }
    template <class V>
    void visit(V& v) {
      v("p", p, "seed", seed, "relu", relu, "first_row", first_row);
    }
  };
  struct Arguments {
    at::Tensor x;
    Rule rule;
    template <class V>
    void visit(V& v) {
      v("x", x);
      rule.visit(v);
    }
  };
  using Results = Single;
  struct Backward {
    at::Tensor grad;
    OptionalTensor y;  // saved with relu only
    Rule rule;
    template <class V>
    void visit(V& v) {
      v("grad", grad, "y", y);
      rule.visit(v);
    }
  };
  static Backward save(const Arguments& in, const Results& out) {
    return {{}, in.rule.relu ? OptionalTensor(out.result) : std::nullopt, in.rule};
  }
};

Backends<FusedDropout::Arguments>& dropout_backends() {
  static Backends<FusedDropout::Arguments> all("dropout");
  return all;
}

// Number of rows: the size of the first axis.
std::int64_t n_rows(const at::Tensor& x) {
  return x.dim() == 0 ? 1 : std::max<std::int64_t>(1, x.size(0));
}

constexpr std::int64_t kWord = 0xFFFFFFFF;

// The hash of the kernels in 64-bit tensor arithmetic, truncated to 32 bits.
at::Tensor scramble(at::Tensor x) {
  x = x.bitwise_xor(x.bitwise_right_shift(16));
  x = (x * 0x7FEB352D).bitwise_and(kWord);
  x = x.bitwise_xor(x.bitwise_right_shift(15));
  x = (x * 0x846CA68B).bitwise_and(kWord);
  return x.bitwise_xor(x.bitwise_right_shift(16));
}

}  // namespace

std::uint64_t row_seed(std::uint64_t seed, std::int64_t row) {
  return seed + static_cast<std::uint64_t>(row) * 0x9E3779B97F4A7C15ULL;
}

at::Tensor random_bits(const Places& p, at::Device device) {
  const at::TensorOptions whole = at::TensorOptions(at::kLong).device(device);
  const at::Tensor row = at::arange(p.first_row, p.first_row + p.rows, whole).unsqueeze(1);
  const at::Tensor seed =
      row * static_cast<std::int64_t>(row_seed(0, 1)) + static_cast<std::int64_t>(p.seed);  // wraps as row_seed() does
  const at::Tensor low = seed.bitwise_and(kWord), high = seed.bitwise_right_shift(32).bitwise_and(kWord);
  const at::Tensor place = at::arange(p.per_row, whole);
  return scramble(scramble((place + low).bitwise_and(kWord)).bitwise_xor(high));
}

namespace {

at::Tensor dropout_reference(const at::Tensor& x, const FusedDropout::Rule& o) {
  const std::int64_t rows = n_rows(x);
  const at::Tensor bits = random_bits(
      {.seed = static_cast<std::uint64_t>(o.seed), .first_row = o.first_row, .rows = rows, .per_row = x.numel() / rows},
      x.device());
  const at::Tensor keep = bits.bitwise_right_shift(1).ge(o.threshold()).view(x.sizes()).to(x.scalar_type());
  return (o.relu ? x.relu() : x) * (keep * (1.0 / (1.0 - o.p)));
}

Single dropout_meta(const FusedDropout::Arguments& in) {
  return {dense_like(in.x)};
}
FusedDropout::Arguments dropout_backward_meta(const FusedDropout::Backward& back) {
  return {dense_like(back.grad), {}};
}

at::Tensor dropout_call(const Call<FusedDropout::Arguments>& c) {
  require_floating("dropout", "x", {c.in.x});
  const FusedDropout::Rule& rule = c.in.rule;
  return dropout(
      c.in.x,
      {.p = rule.p, .seed = static_cast<std::uint64_t>(rule.seed), .relu = rule.relu, .first_row = rule.first_row},
      implementation_named(c.implementation));
}

constexpr std::int64_t kElementGrain = 1 << 14;

kernels::DropoutRule rule_of_row(const FusedDropout::Rule& rule, std::int64_t row) {
  return {row_seed(static_cast<std::uint64_t>(rule.seed), rule.first_row + row), rule.threshold(),
          static_cast<float>(1.0 / (1.0 - rule.p)), rule.relu};
}

// Calls body(row, index of the row's first element, begin, end) for ranges [begin, end) within rows that cover the
// tensor.
template <class Body>
void in_parallel(const at::Tensor& like, const Body& body) {
  const std::int64_t per_row = like.numel() / n_rows(like);
  at::parallel_for(0, like.numel(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
    while (begin < end) {
      const std::int64_t row = begin / per_row, stop = std::min(end, (row + 1) * per_row);
      body(row, row * per_row, begin - row * per_row, stop - row * per_row);
      begin = stop;
    }
  });
}

Single dropout_cpu(const FusedDropout::Arguments& in) {
  const at::Tensor x = in.x.contiguous(), y = at::empty(x.sizes(), x.options());
  const kernels::Rows from = matrix_rows(x);
  const kernels::RowsOut to = matrix_rows_out(y);
  in_parallel(x, [&](std::int64_t row, std::int64_t first, std::int64_t begin, std::int64_t end) {
    kernels::dropout(rule_of_row(in.rule, row), from.ahead(first), begin, end, to.ahead(first));
  });
  return {y};
}

FusedDropout::Arguments dropout_backward_cpu(const FusedDropout::Backward& back) {
  const at::Tensor grad = back.grad.contiguous(), result = at::empty(grad.sizes(), grad.options());
  const at::Tensor y = back.y ? back.y->contiguous() : at::Tensor();
  const kernels::Rows d_y = matrix_rows(grad), forward = matrix_rows(y);
  const kernels::RowsOut to = matrix_rows_out(result);
  in_parallel(grad, [&](std::int64_t row, std::int64_t first, std::int64_t begin, std::int64_t end) {
    kernels::dropout_backward(rule_of_row(back.rule, row), d_y.ahead(first), forward.ahead(first), begin, end,
                              to.ahead(first));
  });
  return {result, {}};
}

const Registration kDropoutOnCpu(dropout_backends(),
                                 {{"kernels", at::kCPU, 0, float32_or_bfloat16}, never_refuses, run<FusedDropout>});

}  // namespace

at::Tensor dropout(const at::Tensor& x, const DropoutOptions& o, Implementation implementation) {
  if (!(o.p >= 0.0 && o.p < 1.0)) {
    fail("dropout: p must be at least 0 and below 1, got {}", o.p);
  }
  const FusedDropout::Arguments in{x, {o.p, static_cast<std::int64_t>(o.seed), o.relu, o.first_row}};
  const auto* fused = dropout_backends().choose(implementation, x, in);
  return fused != nullptr ? fused->run(in) : dropout_reference(x, in.rule);
}

TORCH_LIBRARY_FRAGMENT(headroom, library) {
  define<FusedDropout>(library);
  implement<FusedDropout, dropout_meta, dropout_backward_meta>(library, c10::DispatchKey::Meta);
  implement<FusedDropout, dropout_cpu, dropout_backward_cpu>(library, c10::DispatchKey::CPU);
  define_public<Call<FusedDropout::Arguments>, dropout_call>(library, "dropout");
}

}  // namespace headroom::ops
