#include "head_map.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/cpu/attention/composed/head_map.cc"
#include <hwy/foreach_target.h>
// Must follow foreach_target.h:
#include <hwy/highway.h>

#include "head_map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::HWY_NAMESPACE {

constexpr int kQueries = 4;  // with rank 2 their sums take half of the registers

template <int Rows>
struct Fixed {
  Vector v[kMostMappedHeads][Rows];
};

// The fixed map's contribution to every head, computed before any head is overwritten.
template <int Rank, int Rows>
HWY_INLINE void map_fixed(const Group<Rank, Rows>& g, const HeadRows& rows, std::int64_t j, Fixed<Rows>& sum) {
  const Tag d;
  for (std::int64_t h = 0; h < g.m; ++h) {
    for (int q = 0; q < Rows; ++q) {
      sum.v[h][q] = hn::Zero(d);
    }
    for (std::int64_t from = 0; from < g.m; ++from) {
      const Vector weight = hn::Set(d, g.fixed()[from * g.m + h]);
      for (int q = 0; q < Rows; ++q) {
        sum.v[h][q] = hn::MulAdd(hn::LoadU(d, g.row(rows, q, from) + j), weight, sum.v[h][q]);
      }
    }
  }
}

// Maps one SIMD vector of keys for `Rows` queries.
template <class G>
HWY_INLINE void MapVector(const G& g, const QueryFactors<G>& factors, const HeadRows& rows, const HeadRows& to,
                          std::int64_t j) {
  constexpr int Rows = G::kRows;
  const Tag d;
  const HeadMap& x = g.map;
  Ranks<G> by_query, by_key;
  by_query.clear(g);
  by_key.clear(g);
  for (std::int64_t h = 0; h < g.m; ++h) {
    Vector a[Rows];
    for (int q = 0; q < Rows; ++q) {
      a[q] = hn::LoadU(d, g.row(rows, q, h) + j);
    }
    if (x.u_query != nullptr) {
      add_by_query(g, a, factors.of[h].u, by_query);
    }
    if (x.u_key != nullptr) {
      add_by_key(g, a, x.u_key, h, j, by_key);
    }
  }
  if (g.sums.data != nullptr) {
    for (std::int64_t r = 0; r < g.rank(); ++r) {
      for (int q = 0; q < Rows; ++q) {
        hn::StoreU(by_query.v[r][q], d, g.sum(0, r, q) + j);
        hn::StoreU(by_key.v[r][q], d, g.sum(1, r, q) + j);
      }
    }
  }
  Fixed<Rows> fixed;
  if (x.fixed != nullptr) {
    map_fixed(g, rows, j, fixed);
  }
  for (std::int64_t h = 0; h < g.m; ++h) {
    const Vector key_gate = g.key_gate(h, j);
    Vector out[Rows];
    for (int q = 0; q < Rows; ++q) {
      const Vector own = hn::Add(key_gate, hn::Set(d, factors.of[h].own[q]));
      out[q] = hn::Mul(hn::LoadU(d, g.row(rows, q, h) + j), own);
      if (x.fixed != nullptr) {
        out[q] = hn::Add(out[q], fixed.v[h][q]);
      }
    }
    for (std::int64_t r = 0; x.w_query != nullptr && r < g.rank(); ++r) {
      for (int q = 0; q < Rows; ++q) {
        out[q] = hn::MulAdd(by_query.v[r][q], hn::Set(d, factors.of[h].w[r][q]), out[q]);
      }
    }
    for (std::int64_t r = 0; x.w_key != nullptr && r < g.rank(); ++r) {
      const Vector weight = hn::LoadU(d, x.w_key + g.key_row(r, h) + j);
      for (int q = 0; q < Rows; ++q) {
        out[q] = hn::MulAdd(by_key.v[r][q], weight, out[q]);
      }
    }
    for (int q = 0; q < Rows; ++q) {
      hn::StoreU(out[q], d, g.row(to, q, h) + j);
    }
  }
}

template <int Rank, int Rows>
HWY_INLINE void multiply(const Group<Rank, Rows>& g, const float* factor, const HeadRows& rows, std::int64_t j) {
  const Tag d;
  for (std::int64_t h = 0; h < g.m; ++h) {
    for (int q = 0; q < Rows; ++q) {
      float* at = g.row(rows, q, h) + j;
      hn::StoreU(hn::Mul(hn::LoadU(d, at), hn::Set(d, factor[q * g.map.heads + g.first + h])), d, at);
    }
  }
}

void MapHeads(const HeadMap& map, const float* factor, HeadRows all, HeadRows all_to, std::int64_t n, HeadSums sums) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Tag()));
  // Captures copies: with references the compiler must assume that the stores change them.
  for_groups<kQueries>(map, all.rows, sums, [=](const auto g, std::int64_t i) HWY_ATTR {
    const HeadRows rows = rows_from(all, i), to = rows_from(all_to, i);
    const QueryFactors factors(g);
    for (std::int64_t j = 0; j < n; j += lanes) {
      if (factor != nullptr) {
        multiply(g, factor + i * map.heads, rows, j);
      }
      MapVector(g, factors, rows, to, j);
    }
  });
}

}  // namespace headroom::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::kernels {

HWY_EXPORT(MapHeads);

void map_heads(const HeadMap& map, const float* factor, HeadRows a, HeadRows to, std::int64_t n, HeadSums sums) {
  HWY_DYNAMIC_DISPATCH(MapHeads)(map, factor, a, to, n, sums);
}

}  // namespace headroom::kernels
#endif
