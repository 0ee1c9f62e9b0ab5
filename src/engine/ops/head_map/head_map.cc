#include "headroom/ops/head_map.h"

#include "engine/ops/operator.h"
#include "engine/ops/shapes.h"
#include "head_map_arguments.h"
#include "headroom/core/error.h"

namespace headroom::ops {
namespace {

struct Sizes {
  c10::SymInt b, h, t, s, groups, m;
};

void check_side(const HeadMapSide& side, const char* name, const c10::SymInt& n, at::SymIntArrayRef scores) {
  const c10::SymInt width = scores[1] * (2 * side.rank + (side.has_gate ? 1 : 0));
  const std::vector<c10::SymInt> expected = {scores[0], n, width};
  const bool needed = side.rank > 0 || side.has_gate;
  if (side.factors.defined() ? side.factors.sym_sizes() != at::SymIntArrayRef(expected) : needed) {
    fail("head map: factors of the {} side must be {}, got {}", name, shape_of(expected),
         side.factors.defined() ? shape_of(side.factors) : "none");
  }
}

// [B, n, R, H] to [B, C, n, R, m].
at::Tensor by_group(const at::Tensor& factor, const Sizes& z) {
  return factor.unflatten_symint(3, {z.groups, z.m}).permute({0, 3, 1, 2, 4});
}

// Returns the low-rank term of one side, [B, H, T, S].
at::Tensor low_rank(const HeadMapSide& side, const at::Tensor& a, const Sizes& z, bool on_query) {
  const at::Tensor grouped = a.view_symint({z.b, z.groups, z.m, z.t, z.s});
  // One matrix per token of the side: [B, C, n, m, tokens of the other side].
  const at::Tensor heads = on_query ? grouped.permute({0, 1, 3, 2, 4}) : grouped.permute({0, 1, 4, 2, 3});
  const auto factor = [&](const at::Tensor& f) { return by_group(f, z).to(a.scalar_type()); };
  const at::Tensor inner = factor(side.u()).matmul(heads);                   // [B, C, n, R, other]
  const at::Tensor mapped = factor(side.w()).transpose(3, 4).matmul(inner);  // [B, C, n, m, other]
  const at::Tensor back = on_query ? mapped.permute({0, 1, 3, 2, 4}) : mapped.permute({0, 1, 3, 4, 2});
  return back.reshape_symint({z.b, z.h, z.t, z.s});
}

}  // namespace

at::Tensor HeadMapSide::u() const {
  return factors.narrow_symint(2, 0, n_heads() * rank).unflatten_symint(2, {rank, n_heads()});
}

at::Tensor HeadMapSide::w() const {
  return factors.narrow_symint(2, n_heads() * rank, n_heads() * rank).unflatten_symint(2, {rank, n_heads()});
}

at::Tensor HeadMapSide::gate() const {
  return factors.narrow_symint(2, n_heads() * (2 * rank), n_heads());
}

void check_head_map(const HeadMap& map, at::SymIntArrayRef scores) {
  if (scores.size() != 4 || map.n_groups < 1 || scores[1] % map.n_groups != 0) {
    fail("head map: scores must be [B, H, T, S] with {} groups dividing H, got {}", map.n_groups, shape_of(scores));
  }
  if (map.query.rank < 0 || map.key.rank < 0) {
    fail("head map: the rank of a side must be at least 0, got {} and {}", map.query.rank, map.key.rank);
  }
  check_side(map.query, "query", scores[2], scores);
  check_side(map.key, "key", scores[3], scores);
  const c10::SymInt m = scores[1] / map.n_groups;
  const std::vector<c10::SymInt> expected = {map.n_groups, m, m};
  if (map.fixed && map.fixed->sym_sizes() != at::SymIntArrayRef(expected)) {
    fail("head map: the fixed map must be {}, got {}", shape_of(expected), shape_of(*map.fixed));
  }
}

at::Tensor apply_head_map(const HeadMap& map, const at::Tensor& given) {
  check_head_map(map, given.sym_sizes());
  const at::Tensor a = given.contiguous();
  const Sizes z{a.sym_size(0), a.sym_size(1), a.sym_size(2), a.sym_size(3), map.n_groups, a.sym_size(1) / map.n_groups};
  at::Tensor sum = map.skip ? a : at::zeros_like(a);
  if (map.fixed) {
    const at::Tensor flat = a.view_symint({z.b, z.groups, z.m, z.t * z.s});
    sum = sum + map.fixed->to(a.scalar_type()).transpose(1, 2).matmul(flat).view_symint(a.sym_sizes());
  }
  for (const bool on_query : {true, false}) {
    const HeadMapSide& side = on_query ? map.query : map.key;
    if (side.rank > 0) {
      sum = sum + low_rank(side, a, z, on_query);
    }
    if (side.has_gate) {
      const at::Tensor gate = side.gate().transpose(1, 2);
      sum = sum + a * gate.unsqueeze(on_query ? 3 : 2);
    }
  }
  return sum;
}

namespace {

struct HeadMapCall {
  at::Tensor a;
  HeadMapArguments map;
  template <class V>
  void visit(V& v) {
    v("a", a);
    map.visit(v);
  }
};

at::Tensor head_map_call(const HeadMapCall& c) {
  require_floating("head map", "a", {c.a});
  return in_type(apply_head_map(c.map.map(), c.a), c.a.scalar_type());
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(headroom, library) {
  define_public<HeadMapCall, head_map_call>(library, "head_map");
}

}  // namespace headroom::ops
