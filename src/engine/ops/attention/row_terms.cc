#include "row_terms.h"

#include "engine/ops/shapes.h"

namespace headroom::ops {
namespace {

at::Tensor row_terms_reference(const RowTerms::Arguments& in) {
  const at::ScalarType type = in.t.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor t = in.t.to(type), directions = in.directions.to(type);
  return at::cat({t.square().sum(-1).unsqueeze(2), directions.matmul(t.transpose(2, 3))}, 2);
}

Single row_terms_meta(const RowTerms::Arguments& in) {
  return {at::empty_symint({in.t.sym_size(0), in.t.sym_size(1), in.directions.sym_size(1) + 1, in.t.sym_size(2)},
                           in.t.options().dtype(at::kFloat))};
}

RowTerms::Arguments row_terms_backward_meta(const RowTerms::Backward& back) {
  return {empty_by_token(back.in.t), dense_like(back.in.directions)};
}

}  // namespace

Backends<RowTerms::Arguments>& row_terms_backends() {
  static Backends<RowTerms::Arguments> all("row_terms");
  return all;
}

at::Tensor row_terms(const at::Tensor& t, const at::Tensor& directions, Implementation implementation) {
  const RowTerms::Arguments in{t, directions};
  const auto* fused = row_terms_backends().choose_inside(implementation, t, in);
  return fused != nullptr ? fused->run(in) : row_terms_reference(in);
}

TORCH_LIBRARY_FRAGMENT(headroom, library) {
  define<RowTerms>(library);
}
TORCH_LIBRARY_IMPL(headroom, Meta, library) {
  implement<RowTerms, row_terms_meta, row_terms_backward_meta>(library);
}

}  // namespace headroom::ops
