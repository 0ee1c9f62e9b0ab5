// The way back through mixed heads, in three passes over some keys that stay in the first-level cache: sums over heads,
// gradients of the query's factors, gradients of the keys' factors and of the rows themselves.
#include <algorithm>

#include "headroom/kernels/cpu/head_mix.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/head_mix_backward.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include "kernels/cpu/head_mix-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::HWY_NAMESPACE {

constexpr int kQueriesBack = 2;           // the sums of more do not fit into the registers
constexpr std::int64_t kKeys = 128;       // of one round
constexpr std::int64_t kHeadsAtOnce = 4;  // whose sums over the keys are kept in registers

HWY_INLINE void add_to(float* to, const Vector v) {
  const Tag d;
  hn::StoreU(hn::Add(hn::LoadU(d, to), v), d, to);
}

// Of one round's keys: t = sum_m a_m u_rm and z = sum_h d_h w_rh, by the query's factors and by the keys'.
template <int Rank, int Rows>
struct Round {
  static constexpr int kRoom = Group<Rank, Rows>::kRoom;
  HWY_ALIGN float t_query[kRoom][Rows][kKeys], z_query[kRoom][Rows][kKeys], t_key[kRoom][Rows][kKeys],
      z_key[kRoom][Rows][kKeys];
};

template <int Rank, int Rows, class Sums>
HWY_INLINE void keep(const Group<Rank, Rows>& g, const Sums& sums, float (*to)[Rows][kKeys], std::int64_t k) {
  for (std::int64_t r = 0; r < g.rank(); ++r) {
    for (int q = 0; q < Rows; ++q) {
      hn::Store(sums.v[r][q], Tag(), to[r][q] + k);
    }
  }
}

template <int Rank, int Rows>
HWY_INLINE void SumOverHeads(const Group<Rank, Rows>& g, const HeadRows& rows, const HeadRows& d_rows, std::int64_t j,
                             std::int64_t k, Round<Rank, Rows>& round) {
  const Tag d;
  const HeadMix& x = g.mix;
  Ranks<Group<Rank, Rows>, Rows> t_query, z_query, t_key, z_key;
  t_query.clear(g.rank());
  z_query.clear(g.rank());
  t_key.clear(g.rank());
  z_key.clear(g.rank());
  for (std::int64_t h = 0; h < g.m; ++h) {
    Vector a[Rows], back[Rows];
    for (int q = 0; q < Rows; ++q) {
      a[q] = hn::LoadU(d, g.row(rows, q, h) + j);
      back[q] = hn::LoadU(d, g.row(d_rows, q, h) + j);
    }
    if (x.u_query != nullptr) {
      add_by_query(g, a, x.u_query, h, t_query);
      add_by_query(g, back, x.w_query, h, z_query);
    }
    if (x.u_key != nullptr) {
      add_by_key(g, a, x.u_key, h, j, t_key);
      add_by_key(g, back, x.w_key, h, j, z_key);
    }
  }
  keep(g, t_query, round.t_query, k);
  keep(g, z_query, round.z_query, k);
  keep(g, t_key, round.t_key, k);
  keep(g, z_key, round.z_key, k);
}

// Sums over the keys of one query, kept as vectors until its row is done: [R, m] and [m].
struct QuerySums {
  Vector u[kMostMixRank * kMostMixedHeads], w[kMostMixRank * kMostMixedHeads], gate[kMostMixedHeads];
};

// Adds keys [j, j + n) for heads [h, h + Heads) and one rank; the gates with rank 0.
template <int Heads, class G, class R>
HWY_INLINE void SumOverKeys(const G& g, const HeadRows& rows, const HeadRows& d_rows, int q, std::int64_t r,
                            std::int64_t h, std::int64_t j, std::int64_t n, const R& round, QuerySums& sums) {
  const Tag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  Vector u[Heads], w[Heads], gate[Heads];
  for (int i = 0; i < Heads; ++i) {
    u[i] = sums.u[r * g.m + h + i];
    w[i] = sums.w[r * g.m + h + i];
    gate[i] = sums.gate[h + i];
  }
  for (std::int64_t k = 0; k < n; k += lanes) {
    const Vector t = hn::Load(d, round.t_query[r][q] + k), z = hn::Load(d, round.z_query[r][q] + k);
    for (int i = 0; i < Heads; ++i) {
      const Vector a = hn::LoadU(d, g.row(rows, q, h + i) + j + k),
                   back = hn::LoadU(d, g.row(d_rows, q, h + i) + j + k);
      u[i] = hn::MulAdd(z, a, u[i]);
      w[i] = hn::MulAdd(t, back, w[i]);
      gate[i] = hn::MulAdd(a, back, gate[i]);
    }
  }
  for (int i = 0; i < Heads; ++i) {
    sums.u[r * g.m + h + i] = u[i];
    sums.w[r * g.m + h + i] = w[i];
    if (r == 0) {
      sums.gate[h + i] = gate[i];
    }
  }
}

// Gradients of the keys' factors, added up over the queries first, and of the rows.
template <int Rank, int Rows>
HWY_INLINE void BackVector(const Group<Rank, Rows>& g, const HeadRows& rows, const HeadRows& d_rows, std::int64_t j,
                           std::int64_t k, const Round<Rank, Rows>& round, const HeadMixGradients& to) {
  const Tag d;
  const HeadMix& x = g.mix;
  Vector extra[kMostMixedHeads][Rows];  // what the fixed map adds, before any row is overwritten
  for (std::int64_t from = 0; x.fixed != nullptr && from < g.m; ++from) {
    for (int q = 0; q < Rows; ++q) {
      extra[from][q] = hn::Zero(d);
      for (std::int64_t h = 0; h < g.m; ++h) {
        extra[from][q] =
            hn::MulAdd(hn::LoadU(d, g.row(d_rows, q, h) + j), hn::Set(d, g.fixed()[from * g.m + h]), extra[from][q]);
      }
    }
  }
  for (std::int64_t h = 0; h < g.m; ++h) {
    const Vector key_gate = g.key_gate(h, j);
    Vector a[Rows], back[Rows], result[Rows], own = hn::Zero(d);
    for (int q = 0; q < Rows; ++q) {
      a[q] = hn::LoadU(d, g.row(rows, q, h) + j);
      back[q] = hn::LoadU(d, g.row(d_rows, q, h) + j);
      result[q] = hn::Mul(back[q], g.own(q, h, key_gate));
      own = hn::MulAdd(a[q], back[q], own);
      if (x.fixed != nullptr) {
        result[q] = hn::Add(result[q], extra[h][q]);
      }
    }
    if (x.gate_key != nullptr) {
      add_to(to.gate_key + g.key_row(0, h) + j, own);
    }
    for (std::int64_t r = 0; x.u_query != nullptr && r < g.rank(); ++r) {
      for (int q = 0; q < Rows; ++q) {
        result[q] =
            hn::MulAdd(hn::Load(d, round.z_query[r][q] + k), hn::Set(d, x.u_query[g.scalar(q, r, h)]), result[q]);
      }
    }
    for (std::int64_t r = 0; x.u_key != nullptr && r < g.rank(); ++r) {
      const std::int64_t at = g.key_row(r, h) + j;
      const Vector u = hn::LoadU(d, x.u_key + at);
      Vector d_u = hn::LoadU(d, to.u_key + at), d_w = hn::LoadU(d, to.w_key + at);
      for (int q = 0; q < Rows; ++q) {
        const Vector z = hn::Load(d, round.z_key[r][q] + k);
        result[q] = hn::MulAdd(z, u, result[q]);
        d_u = hn::MulAdd(z, a[q], d_u);
        d_w = hn::MulAdd(hn::Load(d, round.t_key[r][q] + k), back[q], d_w);
      }
      hn::StoreU(d_u, d, to.u_key + at);
      hn::StoreU(d_w, d, to.w_key + at);
    }
    for (int q = 0; q < Rows; ++q) {
      hn::StoreU(result[q], d, g.row(d_rows, q, h) + j);
    }
  }
}

// d_fixed[from][to] += sum over queries and keys of a_from d_to.
template <class G>
void FixedBackward(const G& g, int queries, const HeadRows& rows, const HeadRows& d_rows, std::int64_t n, float* to) {
  const Tag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t from = 0; from < g.m; ++from) {
    for (std::int64_t h = 0; h < g.m; ++h) {
      Vector sum = hn::Zero(d);
      for (int q = 0; q < queries; ++q) {
        for (std::int64_t j = 0; j < n; j += lanes) {
          sum = hn::MulAdd(hn::LoadU(d, g.row(rows, q, from) + j), hn::LoadU(d, g.row(d_rows, q, h) + j), sum);
        }
      }
      to[(g.first + from) * g.m + h] += hn::GetLane(hn::SumOfLanes(d, sum));
    }
  }
}

template <int Rank, int Rows>
HWY_INLINE void SumRound(const Group<Rank, Rows>& g, const HeadRows& rows, const HeadRows& d_rows, std::int64_t j,
                         std::int64_t n, const Round<Rank, Rows>& round, QuerySums* sums) {
  for (int q = 0; q < Rows; ++q) {
    for (std::int64_t r = 0; r < std::max<std::int64_t>(1, g.rank()); ++r) {
      std::int64_t h = 0;
      for (; h + kHeadsAtOnce <= g.m; h += kHeadsAtOnce) {
        SumOverKeys<kHeadsAtOnce>(g, rows, d_rows, q, r, h, j, n, round, sums[q]);
      }
      for (; h < g.m; ++h) {
        SumOverKeys<1>(g, rows, d_rows, q, r, h, j, n, round, sums[q]);
      }
    }
  }
}

// Adds a query's sums to where its gradients stand.
template <class G>
HWY_INLINE void Finish(const G& g, int q, const QuerySums& sums, const HeadMixGradients& to) {
  const auto total = [](const Vector v) HWY_ATTR { return hn::GetLane(hn::SumOfLanes(Tag(), v)); };
  for (std::int64_t h = 0; h < g.m; ++h) {
    for (std::int64_t r = 0; to.u_query != nullptr && r < g.rank(); ++r) {
      to.u_query[g.scalar(q, r, h)] += total(sums.u[r * g.m + h]);
      to.w_query[g.scalar(q, r, h)] += total(sums.w[r * g.m + h]);
    }
    if (to.gate_query != nullptr) {
      to.gate_query[q * g.mix.query_stride + g.first + h] += total(sums.gate[h]);
    }
  }
}

template <int Rank, int Rows>
void MixGroupBackward(const Group<Rank, Rows>& g, const HeadRows& rows, const HeadRows& d_rows, std::int64_t n,
                      const HeadMixGradients& to) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Tag()));
  if (to.fixed != nullptr) {
    FixedBackward(g, Rows, rows, d_rows, n, to.fixed);
  }
  const bool sums_keys = to.u_query != nullptr || to.gate_query != nullptr;
  QuerySums sums[Rows];
  for (QuerySums& each : sums) {
    std::fill_n(each.u, std::max<std::int64_t>(1, g.rank()) * g.m, hn::Zero(Tag()));
    std::fill_n(each.w, std::max<std::int64_t>(1, g.rank()) * g.m, hn::Zero(Tag()));
    std::fill_n(each.gate, g.m, hn::Zero(Tag()));
  }
  Round<Rank, Rows> round;
  if (g.mix.u_query == nullptr) {  // the sums over keys read it all the same, for the gates' sake
    round = {};
  }
  for (std::int64_t j = 0; j < n; j += kKeys) {
    const std::int64_t keys = std::min(kKeys, n - j);
    for (std::int64_t k = 0; k < keys; k += lanes) {
      SumOverHeads(g, rows, d_rows, j + k, k, round);
    }
    if (sums_keys) {
      SumRound(g, rows, d_rows, j, keys, round, sums);
    }
    for (std::int64_t k = 0; k < keys; k += lanes) {
      BackVector(g, rows, d_rows, j + k, k, round, to);
    }
  }
  for (int q = 0; q < Rows; ++q) {
    Finish(g, q, sums[q], to);
  }
}

void MixHeadsBackward(const HeadMix& mix, HeadRows all, HeadRows d_all, std::int64_t n, const HeadMixGradients& to) {
  for_groups<kQueriesBack>(mix, all.rows, [&](const auto& g, std::int64_t i) HWY_ATTR {
    HeadMixGradients here = to;
    const auto move = [&](float*& p) { p = p == nullptr ? nullptr : p + i * mix.query_stride; };
    move(here.u_query);
    move(here.w_query);
    move(here.gate_query);
    MixGroupBackward(g, rows_from(all, i), rows_from(d_all, i), n, here);
  });
}

}  // namespace headroom::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::kernels {

HWY_EXPORT(MixHeadsBackward);

void mix_heads_backward(const HeadMix& mix, HeadRows a, HeadRows d, std::int64_t n, const HeadMixGradients& gradients) {
  HWY_DYNAMIC_DISPATCH(MixHeadsBackward)(mix, a, d, n, gradients);
}

}  // namespace headroom::kernels
#endif
