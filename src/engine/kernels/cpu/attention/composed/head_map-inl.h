// Shared by the head map and its backward pass. Included once per instruction set.
#if defined(HEADROOM_KERNELS_HEAD_MAP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEADROOM_KERNELS_HEAD_MAP_INL_H_
#undef HEADROOM_KERNELS_HEAD_MAP_INL_H_
#else
#define HEADROOM_KERNELS_HEAD_MAP_INL_H_
#endif

#include "engine/kernels/cpu/vectors-inl.h"
#include "head_map.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::HWY_NAMESPACE {

// One group of m heads, the first of which is `first`, for `Rows` queries at once, so that a key's factors are loaded
// once for all of them. Rank 0: the rank is known only at run time.
template <int Rank, int Rows>
struct Group {
  static constexpr int kRoom = Rank > 0 ? Rank : kMostMapRank;
  static constexpr int kRows = Rows;
  HeadMap map;  // its pointers start at these queries
  std::int64_t first, m;
  HeadSums sums;           // of this group, starting at these queries
  std::int64_t sums_rows;  // rows of all queries

  HWY_INLINE std::int64_t rank() const { return Rank > 0 ? Rank : map.rank; }
  HWY_INLINE std::int64_t scalar(std::int64_t q, std::int64_t r, std::int64_t h) const {
    return q * map.query_stride + r * map.heads + first + h;
  }
  HWY_INLINE std::int64_t key_row(std::int64_t r, std::int64_t h) const {
    return (r * map.heads + first + h) * map.key_stride;
  }
  HWY_INLINE const float* fixed() const { return map.fixed + first * m; }
  HWY_INLINE float* row(const HeadRows& rows, std::int64_t q, std::int64_t h) const {
    return rows.data + (first + h) * rows.head_stride + q * rows.row_stride;
  }
  HWY_INLINE float* sum(std::int64_t side, std::int64_t r, std::int64_t q) const {
    return sums.data + ((side * rank() + r) * sums_rows + q) * sums.stride;
  }
  HWY_INLINE Vector key_gate(std::int64_t h, std::int64_t j) const {
    const Tag d;
    return map.gate_key != nullptr ? hn::LoadU(d, map.gate_key + key_row(0, h) + j) : hn::Zero(d);
  }
};

// The queries' factors, copied so that factors that are used together are adjacent.
template <class G>
struct QueryFactors {
  struct Head {
    float own[G::kRows];  // skip plus the query's gate
    float u[G::kRoom][G::kRows], w[G::kRoom][G::kRows];
  } of[kMostMappedHeads];

  HWY_INLINE explicit QueryFactors(const G& g) {
    for (std::int64_t h = 0; h < g.m; ++h) {
      for (int q = 0; q < G::kRows; ++q) {
        const HeadMap& x = g.map;
        of[h].own[q] = (x.skip ? 1.0F : 0.0F) + (x.gate_query != nullptr ? x.gate_query[g.scalar(q, 0, h)] : 0.0F);
        for (std::int64_t r = 0; x.u_query != nullptr && r < g.rank(); ++r) {
          of[h].u[r][q] = x.u_query[g.scalar(q, r, h)];
          of[h].w[r][q] = x.w_query[g.scalar(q, r, h)];
        }
      }
    }
  }
};

// One SIMD vector per query and rank.
template <class G>
struct Ranks {
  Vector v[G::kRoom][G::kRows];
  HWY_INLINE void clear(const G& g) {
    for (std::int64_t r = 0; r < g.rank(); ++r) {
      for (int q = 0; q < G::kRows; ++q) {
        v[r][q] = hn::Zero(Tag());
      }
    }
  }
};

// sum[r][q] += a[q] * factors[r][q], with the queries' factors of one head.
template <class G>
HWY_INLINE void add_by_query(const G& g, const Vector* a, const float (*factors)[G::kRows], Ranks<G>& sum) {
  for (std::int64_t r = 0; r < g.rank(); ++r) {
    for (int q = 0; q < G::kRows; ++q) {
      sum.v[r][q] = hn::MulAdd(a[q], hn::Set(Tag(), factors[r][q]), sum.v[r][q]);
    }
  }
}

// sum[r][q] += a[q] * row(r)[j], with the keys' factors of one head.
template <class G>
HWY_INLINE void add_by_key(const G& g, const Vector* a, const float* factors, std::int64_t h, std::int64_t j,
                           Ranks<G>& sum) {
  for (std::int64_t r = 0; r < g.rank(); ++r) {
    const Vector factor = hn::LoadU(Tag(), factors + g.key_row(r, h) + j);
    for (int q = 0; q < G::kRows; ++q) {
      sum.v[r][q] = hn::MulAdd(a[q], factor, sum.v[r][q]);
    }
  }
}

// Calls body(group, first row) for every group of heads and every `Rows` rows, then for the remaining rows one by one.
template <int Rank, int Rows, class Body>
HWY_INLINE void for_groups_of(const HeadMap& map, std::int64_t rows, const HeadSums& sums, const Body& body) {
  const std::int64_t m = map.heads / map.groups, whole = rows / Rows * Rows;
  for (std::int64_t first = 0; first < map.heads; first += m) {
    for (std::int64_t i = 0; i < rows; i += i < whole ? Rows : 1) {
      HeadMap here = map;
      const auto move = [&](const float*& p) { p = p == nullptr ? nullptr : p + i * map.query_stride; };
      move(here.u_query);
      move(here.w_query);
      move(here.gate_query);
      HeadSums left = sums;
      if (left.data != nullptr) {
        left.data += (first / m * 2 * map.rank * rows + i) * sums.stride;
      }
      if (i < whole) {
        body(Group<Rank, Rows>{here, first, m, left, rows}, i);
      } else {
        body(Group<Rank, 1>{here, first, m, left, rows}, i);
      }
    }
  }
}

template <int Rows, class Body>
HWY_INLINE void for_groups(const HeadMap& map, std::int64_t rows, const HeadSums& sums, const Body& body) {
  switch (map.rank) {
    case 1:
      return for_groups_of<1, Rows>(map, rows, sums, body);
    case 2:
      return for_groups_of<2, Rows>(map, rows, sums, body);
    default:
      return for_groups_of<0, Rows>(map, rows, sums, body);
  }
}

HWY_INLINE HeadRows rows_from(const HeadRows& rows, std::int64_t i) {
  return {rows.data + i * rows.row_stride, rows.head_stride, rows.row_stride, rows.rows - i};
}

}  // namespace headroom::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
