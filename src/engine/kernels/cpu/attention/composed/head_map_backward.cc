// Backward pass of the head map, in three passes over blocks of keys that fit in L1: sums over heads; gradients of the
// query's factors; gradients of the keys' factors and of the rows.
#include <algorithm>

#include "head_map.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/cpu/attention/composed/head_map_backward.cc"
#include <hwy/foreach_target.h>
// Must follow foreach_target.h:
#include <hwy/highway.h>

#include "head_map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::HWY_NAMESPACE {

// AVX-512 has 32 vector registers, older instruction sets 16.
constexpr int kQueriesBack = HWY_MAX_BYTES >= 64 ? 4 : 2;
constexpr int kHeadsAtOnce = HWY_MAX_BYTES >= 64 ? 4 : 2;  // heads whose sums over keys stay in registers
constexpr std::int64_t kMostKeys = 128;                    // keys of one block

// Number of keys of one block: small enough for the rows, factors and gradients of a group's heads to fit in L1, large
// enough to spill the sums over keys rarely.
HWY_INLINE std::int64_t keys_of_round(std::int64_t m) {
  constexpr std::int64_t kVector = 16;  // lanes of the widest vector
  return std::clamp<std::int64_t>(1024 / m / kVector * kVector, kVector, kMostKeys);
}

HWY_INLINE void add_to(float* to, const Vector v) {
  const Tag d;
  hn::StoreU(hn::Add(hn::LoadU(d, to), v), d, to);
}

// Rows and their gradients for one block of keys, [begin, begin + n).
struct Keys {
  const HeadRows& rows;
  const HeadRows& d_rows;
  std::int64_t begin, n;
};

// A query row of the group, and the first rank and head to process.
struct Place {
  int q;
  std::int64_t r, h;
};

// z = sum_h d_h w_rh of one block of keys, with the query's factors and with the keys'.
template <class G>
struct Round {
  HWY_ALIGN float z_query[G::kRoom][G::kRows][kMostKeys], z_key[G::kRoom][G::kRows][kMostKeys];
};

template <class G>
HWY_INLINE void keep(const G& g, const Ranks<G>& sums, float (*to)[G::kRows][kMostKeys], std::int64_t k) {
  for (std::int64_t r = 0; r < g.rank(); ++r) {
    for (int q = 0; q < G::kRows; ++q) {
      hn::Store(sums.v[r][q], Tag(), to[r][q] + k);
    }
  }
}

template <class G>
HWY_INLINE void SumOverHeads(const G& g, const QueryFactors<G>& factors, const Keys& keys, std::int64_t k,
                             Round<G>& round) {
  const Tag d;
  const std::int64_t j = keys.begin + k;
  Ranks<G> z_query, z_key;
  z_query.clear(g);
  z_key.clear(g);
  for (std::int64_t h = 0; h < g.m; ++h) {
    Vector back[G::kRows];
    for (int q = 0; q < G::kRows; ++q) {
      back[q] = hn::LoadU(d, g.row(keys.d_rows, q, h) + j);
    }
    if (g.map.w_query != nullptr) {
      add_by_query(g, back, factors.of[h].w, z_query);
    }
    if (g.map.w_key != nullptr) {
      add_by_key(g, back, g.map.w_key, h, j, z_key);
    }
  }
  keep(g, z_query, round.z_query, k);
  keep(g, z_key, round.z_key, k);
}

// Sums over the keys of one query, kept as SIMD vectors until its row is finished: for each head the gate, then u and w
// for each rank.
template <class G>
struct QuerySums {
  Vector v[kMostMappedHeads * (2 * G::kRoom + 1)];
  HWY_INLINE Vector* of(const G& g, std::int64_t h) { return v + h * (2 * g.rank() + 1); }
  HWY_INLINE void clear(const G& g) { std::fill_n(v, g.m * (2 * g.rank() + 1), hn::Zero(Tag())); }
};

// Adds a block of keys for `Heads` heads and `Count` ranks; the gates are added with rank 0.
template <int Heads, int Count, class G>
HWY_INLINE void SumOverKeys(const G& g, const Keys& keys, const Place place, const Round<G>& round,
                            QuerySums<G>& sums) {
  const Tag d;
  const auto [q, r, h] = place;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  constexpr int kRoom = std::max(1, Count);
  Vector u[kRoom][Heads], w[kRoom][Heads], gate[Heads];
  for (int i = 0; i < Heads; ++i) {
    const Vector* from = sums.of(g, h + i);
    gate[i] = r == 0 ? from[0] : hn::Zero(d);
    for (int c = 0; c < Count; ++c) {
      u[c][i] = from[1 + 2 * (r + c)];
      w[c][i] = from[2 + 2 * (r + c)];
    }
  }
  for (std::int64_t k = 0; k < keys.n; k += lanes) {
    const std::int64_t j = keys.begin + k;
    Vector t[kRoom], z[kRoom];
    for (int c = 0; c < Count; ++c) {
      t[c] = hn::LoadU(d, g.sum(0, r + c, q) + j);
      z[c] = hn::Load(d, round.z_query[r + c][q] + k);
    }
    for (int i = 0; i < Heads; ++i) {
      const Vector a = hn::LoadU(d, g.row(keys.rows, q, h + i) + j),
                   back = hn::LoadU(d, g.row(keys.d_rows, q, h + i) + j);
      gate[i] = hn::MulAdd(a, back, gate[i]);
      for (int c = 0; c < Count; ++c) {
        u[c][i] = hn::MulAdd(z[c], a, u[c][i]);
        w[c][i] = hn::MulAdd(t[c], back, w[c][i]);
      }
    }
  }
  for (int i = 0; i < Heads; ++i) {
    Vector* to = sums.of(g, h + i);
    if (r == 0) {
      to[0] = gate[i];
    }
    for (int c = 0; c < Count; ++c) {
      to[1 + 2 * (r + c)] = u[c][i];
      to[2 + 2 * (r + c)] = w[c][i];
    }
  }
}

template <int Count, class G>
HWY_INLINE void SumRanks(const G& g, const Keys& keys, Place place, const Round<G>& round, QuerySums<G>& sums) {
  for (; place.h + kHeadsAtOnce <= g.m; place.h += kHeadsAtOnce) {
    SumOverKeys<kHeadsAtOnce, Count>(g, keys, place, round, sums);
  }
  for (; place.h < g.m; ++place.h) {
    SumOverKeys<1, Count>(g, keys, place, round, sums);
  }
}

template <class G>
HWY_INLINE void SumRound(const G& g, const Keys& keys, const Round<G>& round, QuerySums<G>* sums) {
  for (int q = 0; q < G::kRows; ++q) {
    if (g.map.u_query == nullptr) {
      SumRanks<0>(g, keys, {q, 0, 0}, round, sums[q]);
    } else if (G::kRoom <= 2) {
      SumRanks<G::kRoom>(g, keys, {q, 0, 0}, round, sums[q]);
    } else {
      for (std::int64_t r = 0; r < g.rank(); ++r) {
        SumRanks<1>(g, keys, {q, r, 0}, round, sums[q]);
      }
    }
  }
}

// For one SIMD vector of keys: gradients of the keys' factors, summed over the queries first, and of the rows.
template <class G>
HWY_INLINE void BackVector(const G& g, const QueryFactors<G>& factors, const Keys& keys, std::int64_t k,
                           const Round<G>& round, const HeadMapGradients& to) {
  constexpr int kRows = G::kRows;
  const Tag d;
  const std::int64_t j = keys.begin + k;
  const HeadMap& x = g.map;
  Vector extra[kMostMappedHeads][kRows];  // the fixed map's contribution, before any row is overwritten
  for (std::int64_t from = 0; x.fixed != nullptr && from < g.m; ++from) {
    for (int q = 0; q < kRows; ++q) {
      extra[from][q] = hn::Zero(d);
      for (std::int64_t h = 0; h < g.m; ++h) {
        extra[from][q] = hn::MulAdd(hn::LoadU(d, g.row(keys.d_rows, q, h) + j), hn::Set(d, g.fixed()[from * g.m + h]),
                                    extra[from][q]);
      }
    }
  }
  Ranks<G> t_key, z_key;
  t_key.clear(g);
  z_key.clear(g);
  for (std::int64_t r = 0; x.u_key != nullptr && r < g.rank(); ++r) {
    for (int q = 0; q < kRows; ++q) {
      t_key.v[r][q] = hn::LoadU(d, g.sum(1, r, q) + j);
      z_key.v[r][q] = hn::Load(d, round.z_key[r][q] + k);
    }
  }
  for (std::int64_t h = 0; h < g.m; ++h) {
    const Vector key_gate = g.key_gate(h, j);
    Vector a[kRows], back[kRows], result[kRows], own = hn::Zero(d);
    for (int q = 0; q < kRows; ++q) {
      a[q] = hn::LoadU(d, g.row(keys.rows, q, h) + j);
      back[q] = hn::LoadU(d, g.row(keys.d_rows, q, h) + j);
      result[q] = hn::Mul(back[q], hn::Add(key_gate, hn::Set(d, factors.of[h].own[q])));
      own = hn::MulAdd(a[q], back[q], own);
      if (x.fixed != nullptr) {
        result[q] = hn::Add(result[q], extra[h][q]);
      }
    }
    if (x.gate_key != nullptr) {
      add_to(to.gate_key + g.key_row(0, h) + j, own);
    }
    for (std::int64_t r = 0; x.u_query != nullptr && r < g.rank(); ++r) {
      for (int q = 0; q < kRows; ++q) {
        result[q] = hn::MulAdd(hn::Load(d, round.z_query[r][q] + k), hn::Set(d, factors.of[h].u[r][q]), result[q]);
      }
    }
    for (std::int64_t r = 0; x.u_key != nullptr && r < g.rank(); ++r) {
      const std::int64_t at = g.key_row(r, h) + j;
      const Vector u = hn::LoadU(d, x.u_key + at);
      Vector d_u = hn::LoadU(d, to.u_key + at), d_w = hn::LoadU(d, to.w_key + at);
      for (int q = 0; q < kRows; ++q) {
        result[q] = hn::MulAdd(z_key.v[r][q], u, result[q]);
        d_u = hn::MulAdd(z_key.v[r][q], a[q], d_u);
        d_w = hn::MulAdd(t_key.v[r][q], back[q], d_w);
      }
      hn::StoreU(d_u, d, to.u_key + at);
      hn::StoreU(d_w, d, to.w_key + at);
    }
    for (int q = 0; q < kRows; ++q) {
      hn::StoreU(result[q], d, g.row(keys.d_rows, q, h) + j);
    }
  }
}

// d_fixed[from][to] += sum over queries and keys of a_from d_to.
template <class G>
void FixedBackward(const G& g, const HeadRows& rows, const HeadRows& d_rows, std::int64_t n, float* to) {
  const Tag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t from = 0; from < g.m; ++from) {
    for (std::int64_t h = 0; h < g.m; ++h) {
      Vector sum = hn::Zero(d);
      for (int q = 0; q < G::kRows; ++q) {
        for (std::int64_t j = 0; j < n; j += lanes) {
          sum = hn::MulAdd(hn::LoadU(d, g.row(rows, q, from) + j), hn::LoadU(d, g.row(d_rows, q, h) + j), sum);
        }
      }
      to[(g.first + from) * g.m + h] += hn::GetLane(hn::SumOfLanes(d, sum));
    }
  }
}

// Sums the lanes of a query's sums and adds the results to its gradients.
template <class G>
HWY_INLINE void Finish(const G& g, int q, QuerySums<G>& sums, const HeadMapGradients& to) {
  const auto total = [](const Vector v) HWY_ATTR { return hn::GetLane(hn::SumOfLanes(Tag(), v)); };
  for (std::int64_t h = 0; h < g.m; ++h) {
    const Vector* from = sums.of(g, h);
    for (std::int64_t r = 0; to.u_query != nullptr && r < g.rank(); ++r) {
      to.u_query[g.scalar(q, r, h)] += total(from[1 + 2 * r]);
      to.w_query[g.scalar(q, r, h)] += total(from[2 + 2 * r]);
    }
    if (to.gate_query != nullptr) {
      to.gate_query[q * g.map.query_stride + g.first + h] += total(from[0]);
    }
  }
}

template <class G>
void MapGroupBackward(const G g, const HeadRows rows, const HeadRows d_rows, std::int64_t n,
                      const HeadMapGradients to) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Tag()));
  if (to.fixed != nullptr) {
    FixedBackward(g, rows, d_rows, n, to.fixed);
  }
  const bool sums_keys = to.u_query != nullptr || to.gate_query != nullptr;
  QuerySums<G> sums[G::kRows];
  for (QuerySums<G>& each : sums) {
    each.clear(g);
  }
  const QueryFactors factors(g);
  Round<G> round;
  const std::int64_t step = keys_of_round(g.m);
  for (std::int64_t j = 0; j < n; j += step) {
    const Keys keys{rows, d_rows, j, std::min(step, n - j)};
    for (std::int64_t k = 0; k < keys.n; k += lanes) {
      SumOverHeads(g, factors, keys, k, round);
    }
    if (sums_keys) {
      SumRound(g, keys, round, sums);
    }
    for (std::int64_t k = 0; k < keys.n; k += lanes) {
      BackVector(g, factors, keys, k, round, to);
    }
  }
  for (int q = 0; q < G::kRows; ++q) {
    Finish(g, q, sums[q], to);
  }
}

void MapHeadsBackward(const HeadMap& map, HeadRows all, HeadRows d_all, std::int64_t n, HeadSums sums,
                      const HeadMapGradients& to) {
  for_groups<kQueriesBack>(map, all.rows, sums, [&](const auto& g, std::int64_t i) HWY_ATTR {
    HeadMapGradients here = to;
    const auto move = [&](float*& p) { p = p == nullptr ? nullptr : p + i * map.query_stride; };
    move(here.u_query);
    move(here.w_query);
    move(here.gate_query);
    MapGroupBackward(g, rows_from(all, i), rows_from(d_all, i), n, here);
  });
}

}  // namespace headroom::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::kernels {

HWY_EXPORT(MapHeadsBackward);

void map_heads_backward(const HeadMap& map, HeadRows a, HeadRows d, std::int64_t n, HeadSums sums,
                        const HeadMapGradients& gradients) {
  HWY_DYNAMIC_DISPATCH(MapHeadsBackward)(map, a, d, n, sums, gradients);
}

}  // namespace headroom::kernels
#endif
