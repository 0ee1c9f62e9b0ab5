#include "headroom/ops/dropout.h"

#include "engine/ops/random_bits.h"
#include "engine/ops/shapes.h"
#include "headroom/core/error.h"
#include "operator.h"

namespace headroom::ops {
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

}  // namespace

Backends<FusedDropout::Arguments>& dropout_backends() {
  static Backends<FusedDropout::Arguments> all("dropout");
  return all;
}

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
  offer<Call<FusedDropout::Arguments>, dropout_call>(library, "dropout");
}
TORCH_LIBRARY_IMPL(headroom, Meta, library) {
  implement<FusedDropout, dropout_meta, dropout_backward_meta>(library);
}

}  // namespace headroom::ops
