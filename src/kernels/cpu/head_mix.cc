#include "headroom/kernels/cpu/head_mix.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/head_mix.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include "kernels/cpu/partial-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::HWY_NAMESPACE {

// One group of m heads beginning at head `first`. With Heads = 0 the number is known only at run time.
template <int Heads>
struct Group {
  const HeadMix& mix;
  std::int64_t first;

  HWY_INLINE std::int64_t m() const { return Heads > 0 ? Heads : mix.heads / mix.groups; }
  HWY_INLINE const float* fixed() const { return mix.fixed + first / m() * m() * m(); }
  HWY_INLINE std::int64_t scalar(std::int64_t r, std::int64_t h) const { return r * mix.heads + first + h; }
  HWY_INLINE std::int64_t row(std::int64_t r, std::int64_t h) const { return scalar(r, h) * mix.key_stride; }
};

constexpr std::int64_t room(int heads) {
  return heads > 0 ? heads : kMostMixedHeads;
}

template <int Heads>
HWY_INLINE Vector sum_of_scalars(const Group<Heads>& g, const Vector* a, const float* factors, std::int64_t r) {
  const Tag d;
  Vector t = hn::Zero(d);
  for (std::int64_t h = 0; h < g.m(); ++h) {
    t = hn::MulAdd(a[h], hn::Set(d, factors[g.scalar(r, h)]), t);
  }
  return t;
}

template <int Heads>
HWY_INLINE Vector sum_of_rows(const Group<Heads>& g, const Vector* a, const float* rows, std::int64_t r,
                              std::int64_t j) {
  const Tag d;
  Vector t = hn::Zero(d);
  for (std::int64_t h = 0; h < g.m(); ++h) {
    t = hn::MulAdd(a[h], hn::LoadU(d, rows + g.row(r, h) + j), t);
  }
  return t;
}

// Gate of head h at key j: both sides' together.
template <int Heads>
HWY_INLINE Vector gate(const Group<Heads>& g, std::int64_t h, std::int64_t j) {
  const Tag d;
  const HeadMix& x = g.mix;
  const Vector query = x.gate_query != nullptr ? hn::Set(d, x.gate_query[g.first + h]) : hn::Zero(d);
  return x.gate_key != nullptr ? hn::Add(query, hn::LoadU(d, x.gate_key + g.row(0, h) + j)) : query;
}

template <int Heads>
void MixGroup(const Group<Heads>& g, const float* factor, HeadRows rows, std::int64_t n) {
  const Tag d;
  const HeadMix& x = g.mix;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t m = g.m();
  const bool gated = x.gate_query != nullptr || x.gate_key != nullptr;
  Vector a[room(Heads)], out[room(Heads)];
  for (std::int64_t j = 0; j < n; j += lanes) {
    for (std::int64_t h = 0; h < m; ++h) {
      a[h] = hn::Mul(hn::LoadU(d, rows.data + (g.first + h) * rows.stride + j), hn::Set(d, factor[g.first + h]));
      out[h] = x.skip ? a[h] : hn::Zero(d);
      if (gated) {
        out[h] = hn::MulAdd(a[h], gate(g, h, j), out[h]);
      }
    }
    for (std::int64_t r = 0; x.u_query != nullptr && r < x.rank; ++r) {
      const Vector t = sum_of_scalars(g, a, x.u_query, r);
      for (std::int64_t h = 0; h < m; ++h) {
        out[h] = hn::MulAdd(t, hn::Set(d, x.w_query[g.scalar(r, h)]), out[h]);
      }
    }
    for (std::int64_t r = 0; x.u_key != nullptr && r < x.rank; ++r) {
      const Vector t = sum_of_rows(g, a, x.u_key, r, j);
      for (std::int64_t h = 0; h < m; ++h) {
        out[h] = hn::MulAdd(t, hn::LoadU(d, x.w_key + g.row(r, h) + j), out[h]);
      }
    }
    for (std::int64_t from = 0; x.fixed != nullptr && from < m; ++from) {
      for (std::int64_t h = 0; h < m; ++h) {
        out[h] = hn::MulAdd(a[from], hn::Set(d, g.fixed()[from * m + h]), out[h]);
      }
    }
    for (std::int64_t h = 0; h < m; ++h) {
      hn::StoreU(out[h], d, rows.data + (g.first + h) * rows.stride + j);
    }
  }
}

HWY_INLINE void add_to(float* to, const Vector v) {
  const Tag d;
  hn::StoreU(hn::Add(hn::LoadU(d, to), v), d, to);
}

// Sums over the keys, kept as vectors until the row is done.
template <int Heads>
struct RowSums {
  Vector u[kMostMixRank * room(Heads)], w[kMostMixRank * room(Heads)], gate[room(Heads)];
};

template <int Heads>
HWY_INLINE void LowRankBackward(const Group<Heads>& g, const Vector* a, const Vector* d_out, std::int64_t j,
                                const HeadMixGradients& to, RowSums<Heads>& sums, Vector* d_a) {
  const Tag d;
  const HeadMix& x = g.mix;
  const std::int64_t m = g.m();
  for (std::int64_t r = 0; x.u_query != nullptr && r < x.rank; ++r) {
    const Vector t = sum_of_scalars(g, a, x.u_query, r), z = sum_of_scalars(g, d_out, x.w_query, r);
    for (std::int64_t h = 0; h < m; ++h) {
      sums.u[r * m + h] = hn::MulAdd(z, a[h], sums.u[r * m + h]);
      sums.w[r * m + h] = hn::MulAdd(t, d_out[h], sums.w[r * m + h]);
      d_a[h] = hn::MulAdd(z, hn::Set(d, x.u_query[g.scalar(r, h)]), d_a[h]);
    }
  }
  for (std::int64_t r = 0; x.u_key != nullptr && r < x.rank; ++r) {
    const Vector t = sum_of_rows(g, a, x.u_key, r, j), z = sum_of_rows(g, d_out, x.w_key, r, j);
    for (std::int64_t h = 0; h < m; ++h) {
      add_to(to.u_key + g.row(r, h) + j, hn::Mul(z, a[h]));
      add_to(to.w_key + g.row(r, h) + j, hn::Mul(t, d_out[h]));
      d_a[h] = hn::MulAdd(z, hn::LoadU(d, x.u_key + g.row(r, h) + j), d_a[h]);
    }
  }
}

template <int Heads>
HWY_INLINE void FixedBackward(const Group<Heads>& g, const float* factor, HeadRows rows, HeadRows d_rows,
                              std::int64_t n, const HeadMixGradients& to) {
  const Tag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t m = g.m();
  for (std::int64_t from = 0; from < m; ++from) {
    for (std::int64_t h = 0; h < m; ++h) {
      Vector sum = hn::Zero(d);
      for (std::int64_t j = 0; j < n; j += lanes) {
        sum = hn::MulAdd(hn::LoadU(d, rows.data + (g.first + from) * rows.stride + j),
                         hn::LoadU(d, d_rows.data + (g.first + h) * d_rows.stride + j), sum);
      }
      to.fixed[(g.first / m * m + from) * m + h] += hn::GetLane(hn::SumOfLanes(d, sum)) * factor[g.first + from];
    }
  }
}

template <int Heads>
void MixGroupBackward(const Group<Heads>& g, const float* factor, HeadRows rows, HeadRows d_rows, std::int64_t n,
                      const HeadMixGradients& to) {
  const Tag d;
  const HeadMix& x = g.mix;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t m = g.m();
  const bool gated = x.gate_query != nullptr || x.gate_key != nullptr;
  if (x.fixed != nullptr) {
    FixedBackward(g, factor, rows, d_rows, n, to);
  }
  RowSums<Heads> sums;
  for (std::int64_t i = 0; i < x.rank * m; ++i) {
    sums.u[i] = sums.w[i] = hn::Zero(d);
  }
  for (std::int64_t h = 0; h < m; ++h) {
    sums.gate[h] = hn::Zero(d);
  }
  Vector a[room(Heads)], d_out[room(Heads)], d_a[room(Heads)];
  for (std::int64_t j = 0; j < n; j += lanes) {
    for (std::int64_t h = 0; h < m; ++h) {
      a[h] = hn::Mul(hn::LoadU(d, rows.data + (g.first + h) * rows.stride + j), hn::Set(d, factor[g.first + h]));
      d_out[h] = hn::LoadU(d, d_rows.data + (g.first + h) * d_rows.stride + j);
      d_a[h] = x.skip ? d_out[h] : hn::Zero(d);
      if (gated) {
        d_a[h] = hn::MulAdd(d_out[h], gate(g, h, j), d_a[h]);
        const Vector product = hn::Mul(d_out[h], a[h]);
        sums.gate[h] = hn::Add(sums.gate[h], product);
        if (x.gate_key != nullptr) {
          add_to(to.gate_key + g.row(0, h) + j, product);
        }
      }
    }
    LowRankBackward(g, a, d_out, j, to, sums, d_a);
    for (std::int64_t from = 0; x.fixed != nullptr && from < m; ++from) {
      for (std::int64_t h = 0; h < m; ++h) {
        d_a[from] = hn::MulAdd(d_out[h], hn::Set(d, g.fixed()[from * m + h]), d_a[from]);
      }
    }
    for (std::int64_t h = 0; h < m; ++h) {
      hn::StoreU(hn::Mul(d_a[h], hn::Set(d, factor[g.first + h])), d, d_rows.data + (g.first + h) * d_rows.stride + j);
    }
  }
  const auto total = [&](const Vector v) HWY_ATTR { return hn::GetLane(hn::SumOfLanes(d, v)); };
  for (std::int64_t h = 0; h < m; ++h) {
    for (std::int64_t r = 0; x.u_query != nullptr && r < x.rank; ++r) {
      to.u_query[g.scalar(r, h)] += total(sums.u[r * m + h]);
      to.w_query[g.scalar(r, h)] += total(sums.w[r * m + h]);
    }
    if (x.gate_query != nullptr) {
      to.gate_query[g.first + h] += total(sums.gate[h]);
    }
  }
}

void MixHeads(const HeadMix& mix, const float* factor, HeadRows a, std::int64_t n) {
  const std::int64_t m = mix.heads / mix.groups;
  for (std::int64_t first = 0; first < mix.heads; first += m) {
    switch (m) {
      case 8:
        MixGroup(Group<8>{mix, first}, factor, a, n);
        break;
      case 16:
        MixGroup(Group<16>{mix, first}, factor, a, n);
        break;
      default:
        MixGroup(Group<0>{mix, first}, factor, a, n);
    }
  }
}

void MixHeadsBackward(const HeadMix& mix, const float* factor, HeadRows a, HeadRows d, std::int64_t n,
                      const HeadMixGradients& to) {
  const std::int64_t m = mix.heads / mix.groups;
  for (std::int64_t first = 0; first < mix.heads; first += m) {
    switch (m) {
      case 8:
        MixGroupBackward(Group<8>{mix, first}, factor, a, d, n, to);
        break;
      case 16:
        MixGroupBackward(Group<16>{mix, first}, factor, a, d, n, to);
        break;
      default:
        MixGroupBackward(Group<0>{mix, first}, factor, a, d, n, to);
    }
  }
}

}  // namespace headroom::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::kernels {

HWY_EXPORT(MixHeads);
HWY_EXPORT(MixHeadsBackward);

void mix_heads(const HeadMix& mix, const float* factor, HeadRows a, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(MixHeads)(mix, factor, a, n);
}
void mix_heads_backward(const HeadMix& mix, const float* factor, HeadRows a, HeadRows d, std::int64_t n,
                        const HeadMixGradients& gradients) {
  HWY_DYNAMIC_DISPATCH(MixHeadsBackward)(mix, factor, a, d, n, gradients);
}

}  // namespace headroom::kernels
#endif
