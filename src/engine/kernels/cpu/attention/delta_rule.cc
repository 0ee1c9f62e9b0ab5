// Within a chunk of n tokens, with the state S before it, G_t = g_1 + .. + g_t and D_ts = exp(G_t - G_s) for s <= t:
//   (I + A) U = beta (V - e^G K S),   A_ts = beta_t (k_t . k_s) D_ts for s < t
//   O = e^G Q S + P U,                P_ts = (q_t . k_s) D_ts for s <= t
//   S <- e^{G_n} S + (e^{G_n - G} K)^T U
// U holds the rows that the chunk's tokens write to the state. The triangular system is solved by substitution.
#include "delta_rule.h"

#include <algorithm>
#include <cmath>

#include "engine/kernels/cpu/matmul/tile_product.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/cpu/attention/delta_rule.cc"
#include <hwy/foreach_target.h>
// Must follow foreach_target.h:
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include "engine/kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::HWY_NAMESPACE {
namespace delta_rule {

constexpr std::int64_t kChunk = kDeltaChunk;
constexpr std::int64_t kBlock = 16;  // rows that substitution solves one by one

HWY_INLINE float sum_of(const Vector v) {
  return hn::GetLane(hn::SumOfLanes(Tag(), v));
}

HWY_INLINE float dot(const float* a, const float* b, std::int64_t n) {
  Vector sum = hn::Zero(Tag());
  for_lanes(0, n,
            [&](auto part, std::int64_t i) HWY_ATTR { sum = hn::MulAdd(part.load(a + i), part.load(b + i), sum); });
  return sum_of(sum);
}

// to = factor * from, or += if `add`.
HWY_INLINE void scale_row(const float* from, float factor, std::int64_t n, float* to, bool add = false) {
  const Vector by = hn::Set(Tag(), factor);
  for_lanes(0, n, [&](auto part, std::int64_t i) HWY_ATTR {
    const Vector more = hn::Mul(part.load(from + i), by);
    part.store(add ? hn::Add(part.load(to + i), more) : more, to + i);
  });
}

// row += sum over s in [begin, end) of factors[s] rows[s].
HWY_INLINE void add_rows(const float* factors, Strided<float> rows, std::int64_t begin, std::int64_t end,
                         std::int64_t n, float* row) {
  for_lanes(0, n, [&](auto part, std::int64_t i) HWY_ATTR {
    Vector sum = part.load(row + i);
    for (std::int64_t s = begin; s < end; ++s) {
      sum = hn::MulAdd(hn::Set(Tag(), factors[s]), part.load(rows.data + s * rows.stride + i), sum);
    }
    part.store(sum, row + i);
  });
}

// Intermediate values of a chunk that the forward and backward passes need.
class Chunk {
 public:
  explicit Chunk(const DeltaShape& shape)
      : s_(shape),
        kt_(s_.d_key * kChunk),
        pairs_(kChunk * kChunk),
        minus_a_(kChunk * kChunk),
        p_(kChunk * kChunk),
        d_(kChunk * kChunk) {}

  void set(const DeltaHead& head, std::int64_t begin) {
    n = std::min(kChunk, s_.tokens - begin);
    const auto at = [&](Strided<const float> rows) {
      return Strided<const float>{rows.data + begin * rows.stride, rows.stride};
    };
    q = at(head.q);
    k = at(head.k);
    v = at(head.v);
    beta = head.beta + begin;
    float sum = 0.0F;
    for (std::int64_t t = 0; t < n; ++t) {
      sum += head.log_decay[begin + t];
      total[t] = sum;
    }
    for (std::int64_t t = 0; t < n; ++t) {
      from_start[t] = std::exp(total[t]);
      to_end[t] = std::exp(sum - total[t]);
    }
    transpose(k, n, s_.d_key, {kt_.data(), kChunk});
    tile_product({n, n, s_.d_key, k.stride, kChunk, kChunk}, k.data, kt_.data(), pairs_.data());
    tile_product({n, n, s_.d_key, q.stride, kChunk, kChunk}, q.data, kt_.data(), p_.data());
    for (std::int64_t t = 0; t < n; ++t) {
      decay_row(t);
    }
  }

  // U <- (I + A)^-1 U and U <- (I + A)^-T U, for U [n, w].
  void solve(Strided<float> u) const {
    for (std::int64_t b = 0; b < n; b += kBlock) {
      const std::int64_t end = std::min(n, b + kBlock);
      if (b > 0) {
        tile_product({end - b, s_.d_value, b, kChunk, u.stride, u.stride, true}, minus_a() + b * kChunk, u.data,
                     u.data + b * u.stride);
      }
      for (std::int64_t t = b + 1; t < end; ++t) {
        add_rows(minus_a() + t * kChunk, u, b, t, s_.d_value, u.data + t * u.stride);
      }
    }
  }
  void solve_transposed(Strided<float> u, float* work) const {
    transpose({minus_a(), kChunk}, n, n, {work, kChunk});
    for (std::int64_t b = (n - 1) / kBlock * kBlock; b >= 0; b -= kBlock) {
      const std::int64_t end = std::min(n, b + kBlock);
      if (end < n) {
        tile_product({end - b, s_.d_value, n - end, kChunk, u.stride, u.stride, true}, work + b * kChunk + end,
                     u.data + end * u.stride, u.data + b * u.stride);
      }
      for (std::int64_t t = end - 2; t >= b; --t) {
        add_rows(work + t * kChunk, u, t + 1, end, s_.d_value, u.data + t * u.stride);
      }
    }
  }

  // Writes the transpose of rows [n, width], row t multiplied by factors[t], to [width, kChunk].
  void scaled_columns(Strided<const float> rows, std::int64_t width, const float* factors, float* to) const {
    transpose(rows, n, width, {to, kChunk});
    for (std::int64_t c = 0; c < width; ++c) {
      for_lanes(0, n, [&](auto part, std::int64_t i) HWY_ATTR {
        float* at = to + c * kChunk + i;
        part.store(hn::Mul(part.load(at), part.load(factors + i)), at);
      });
    }
  }

  const float* pairs() const { return pairs_.data(); }  // (k_t . k_s) D_ts [n, n], defined for s <= t
  const float* p() const { return p_.data(); }          // [n, n], 0 above the diagonal
  const float* d() const { return d_.data(); }          // [n, n], defined for s <= t

  std::int64_t n = 0;
  Strided<const float> q{}, k{}, v{};
  const float* beta = nullptr;
  float total[kChunk], from_start[kChunk], to_end[kChunk];  // G, e^G, e^{G_n - G}

 private:
  const float* minus_a() const { return minus_a_.data(); }  // [n, n], 0 on and above the diagonal

  // Computes row t of the matrices of pairs in place, from the dot products stored there.
  void decay_row(std::int64_t t) {
    float *a = minus_a_.data() + t * kChunk, *p = p_.data() + t * kChunk, *d = d_.data() + t * kChunk;
    float* pairs = pairs_.data() + t * kChunk;
    const Vector now = hn::Set(Tag(), total[t]), minus_beta = hn::Set(Tag(), -beta[t]);
    for_lanes(0, t + 1, [&](auto part, std::int64_t i) HWY_ATTR {
      const Vector decay = hn::Exp(Tag(), hn::Sub(now, part.load(total + i)));
      part.store(decay, d + i);
      part.store(hn::Mul(part.load(p + i), decay), p + i);
      const Vector pair = hn::Mul(part.load(pairs + i), decay);
      part.store(pair, pairs + i);
      part.store(hn::Mul(pair, minus_beta), a + i);
    });
    std::fill(p + t + 1, p + n, 0.0F);
    std::fill(a + t, a + n, 0.0F);
  }

  DeltaShape s_;
  Buffer kt_, pairs_, minus_a_, p_, d_;
};

}  // namespace delta_rule

void DeltaRule(const DeltaShape& s, const DeltaHead& head, const float* before, const DeltaSaved<float>& saved,
               Strided<float> o, float* after) {
  constexpr std::int64_t kChunk = kDeltaChunk;
  const std::int64_t e = s.d_key, w = s.d_value, size = e * w;
  using delta_rule::scale_row;
  delta_rule::Chunk chunk(s);
  Buffer rows(kChunk * w), columns(e * kChunk);
  if (before == nullptr) {
    std::fill_n(after, size, 0.0F);
  } else {
    std::copy_n(before, size, after);
  }
  for (std::int64_t begin = 0; begin < s.tokens; begin += kChunk) {
    chunk.set(head, begin);
    const std::int64_t n = chunk.n;
    std::copy_n(after, size, saved.states + begin / kChunk * size);
    const Strided<float> u{saved.written.data + begin * saved.written.stride, saved.written.stride};
    const Strided<float> y{o.data + begin * o.stride, o.stride};
    tile_product({n, w, e, chunk.k.stride, w, w}, chunk.k.data, after, rows.data());
    for (std::int64_t t = 0; t < n; ++t) {
      float* row = u.data + t * u.stride;
      scale_row(chunk.v.data + t * chunk.v.stride, chunk.beta[t], w, row);
      scale_row(rows.data() + t * w, -chunk.beta[t] * chunk.from_start[t], w, row, /*add=*/true);
    }
    chunk.solve(u);
    tile_product({n, w, e, chunk.q.stride, w, w}, chunk.q.data, after, rows.data());
    for (std::int64_t t = 0; t < n; ++t) {
      scale_row(rows.data() + t * w, chunk.from_start[t], w, y.data + t * y.stride);
    }
    tile_product({n, w, n, kChunk, u.stride, y.stride, true}, chunk.p(), u.data, y.data);
    chunk.scaled_columns(chunk.k, e, chunk.to_end, columns.data());
    scale_row(after, chunk.from_start[n - 1], size, after);
    tile_product({e, w, n, kChunk, u.stride, w, true}, columns.data(), u.data, after);
  }
}

namespace delta_rule {

// Computes the gradients chunk by chunk, in reverse order.
class BackwardPass {
 public:
  BackwardPass(const DeltaShape& shape, const DeltaHead& head, const DeltaSaved<const float>& saved,
               Strided<const float> d_o, const DeltaGradients& d)
      : s_(shape),
        head_(head),
        saved_(saved),
        d_o_(d_o),
        d_(d),
        c_(shape),
        d_state_(s_.d_key * s_.d_value),
        turned_(s_.d_key * s_.d_value),
        d_u_(kChunk * s_.d_value),
        u_t_(s_.d_value * kChunk),
        d_p_(kChunk * kChunk),
        d_a_(kChunk * kChunk),
        work_(kChunk * kChunk),
        keys_(kChunk * s_.d_key),
        columns_(s_.d_key * kChunk) {}

  void run() {
    d_state_.fill(0.0F);
    for (std::int64_t begin = (s_.tokens - 1) / kChunk * kChunk; begin >= 0; begin -= kChunk) {
      begin_ = begin;
      c_.set(head_, begin);
      state_ = saved_.states + begin / kChunk * s_.d_key * s_.d_value;
      u_ = {saved_.written.data + begin * saved_.written.stride, saved_.written.stride};
      std::fill(std::begin(d_total_), std::end(d_total_), 0.0F);
      state_update();
      written();
      output();
      reads();
      pairs();
      totals();
    }
  }

 private:
  Strided<float> at(Strided<float> rows) const { return {rows.data + begin_ * rows.stride, rows.stride}; }
  Strided<const float> d_o() const { return {d_o_.data + begin_ * d_o_.stride, d_o_.stride}; }

  // S <- e^{G_n} S + (e^{G_n - G} K)^T U: gradients of K and G, with the gradient of the new state in d_state_.
  void state_update() {
    const std::int64_t n = c_.n, e = s_.d_key, w = s_.d_value;
    transpose({d_state_.data(), w}, e, w, {turned_.data(), e});
    tile_product({n, e, w, u_.stride, e, e}, u_.data, turned_.data(), keys_.data());
    const Strided<float> d_k = at(d_.k);
    float all = c_.from_start[n - 1] * dot(d_state_.data(), state_, e * w);
    for (std::int64_t t = 0; t < n; ++t) {
      const float* row = keys_.data() + t * e;
      scale_row(row, c_.to_end[t], e, d_k.data + t * d_k.stride);
      const float moved = c_.to_end[t] * dot(row, c_.k.data + t * c_.k.stride, e);
      d_total_[t] -= moved;
      all += moved;
    }
    d_total_[n - 1] += all;
  }

  // The gradient of U: from O and the new state, then through the triangular system.
  void written() {
    const std::int64_t n = c_.n, e = s_.d_key, w = s_.d_value;
    const Strided<const float> d_o = this->d_o();
    for (std::int64_t t = 0; t < n; ++t) {
      scale_row(c_.k.data + t * c_.k.stride, c_.to_end[t], e, keys_.data() + t * e);
    }
    tile_product({n, w, e, e, w, w}, keys_.data(), d_state_.data(), d_u_.data());
    transpose({c_.p(), kChunk}, n, n, {work_.data(), kChunk});
    tile_product({n, w, n, kChunk, d_o.stride, w, true}, work_.data(), d_o.data, d_u_.data());
    transpose({u_.data, u_.stride}, n, w, {u_t_.data(), kChunk});
    tile_product({n, n, w, d_o.stride, kChunk, kChunk}, d_o.data, u_t_.data(), d_p_.data());
    c_.solve_transposed({d_u_.data(), w}, work_.data());
    tile_product({n, n, w, w, kChunk, kChunk}, d_u_.data(), u_t_.data(), d_a_.data());  // -dA
  }

  // O = e^G Q S + ..: gradients of Q, G and S.
  void output() {
    const std::int64_t n = c_.n, e = s_.d_key, w = s_.d_value;
    const Strided<const float> d_o = this->d_o();
    scale_row(d_state_.data(), c_.from_start[n - 1], e * w, d_state_.data());
    transpose({state_, w}, e, w, {turned_.data(), e});
    tile_product({n, e, w, d_o.stride, e, e}, d_o.data, turned_.data(), keys_.data());
    const Strided<float> d_q = at(d_.q);
    for (std::int64_t t = 0; t < n; ++t) {
      float* row = d_q.data + t * d_q.stride;
      scale_row(keys_.data() + t * e, c_.from_start[t], e, row);
      d_total_[t] += dot(row, c_.q.data + t * c_.q.stride, e);
    }
    c_.scaled_columns(c_.q, e, c_.from_start, columns_.data());
    tile_product({e, w, n, kChunk, d_o.stride, w, true}, columns_.data(), d_o.data, d_state_.data());
  }

  // beta (V - e^G K S): gradients of V, beta, K, G and S, with the gradient of the right side in d_u_.
  void reads() {
    const std::int64_t n = c_.n, e = s_.d_key, w = s_.d_value;
    tile_product({n, e, w, w, e, e}, d_u_.data(), turned_.data(), keys_.data());
    const Strided<float> d_k = at(d_.k), d_v = at(d_.v);
    float minus[kChunk];
    for (std::int64_t t = 0; t < n; ++t) {
      const float *d_u = d_u_.data() + t * w, *key = keys_.data() + t * e;
      const float read = c_.from_start[t] * dot(key, c_.k.data + t * c_.k.stride, e);
      d_.beta[begin_ + t] = dot(d_u, c_.v.data + t * c_.v.stride, w) - read;
      scale_row(d_u, c_.beta[t], w, d_v.data + t * d_v.stride);
      minus[t] = -c_.beta[t] * c_.from_start[t];
      scale_row(key, minus[t], e, d_k.data + t * d_k.stride, /*add=*/true);
      d_total_[t] -= c_.beta[t] * read;
    }
    c_.scaled_columns(c_.k, e, minus, columns_.data());
    tile_product({e, w, n, kChunk, w, w, true}, columns_.data(), d_u_.data(), d_state_.data());
  }

  // A and P: gradients of Q, K, beta and G.
  void pairs() {
    const std::int64_t n = c_.n, e = s_.d_key;
    for (std::int64_t t = 0; t < n; ++t) {
      pair_row(t);
    }
    const Strided<float> d_q = at(d_.q), d_k = at(d_.k);
    tile_product({n, e, n, kChunk, c_.k.stride, d_q.stride, true}, d_p_.data(), c_.k.data, d_q.data);
    transpose({d_p_.data(), kChunk}, n, n, {work_.data(), kChunk});
    tile_product({n, e, n, kChunk, c_.q.stride, d_k.stride, true}, work_.data(), c_.q.data, d_k.data);
    tile_product({n, e, n, kChunk, c_.k.stride, d_k.stride, true}, d_a_.data(), c_.k.data, d_k.data);
    transpose({d_a_.data(), kChunk}, n, n, {work_.data(), kChunk});
    tile_product({n, e, n, kChunk, c_.k.stride, d_k.stride, true}, work_.data(), c_.k.data, d_k.data);
  }

  // Turns row t of dP and -dA into the gradients of q_t . k_s and k_t . k_s, and adds the gradients of beta and G.
  void pair_row(std::int64_t t) {
    const std::int64_t n = c_.n;
    float *d_p = d_p_.data() + t * kChunk, *d_a = d_a_.data() + t * kChunk;
    const float *p = c_.p() + t * kChunk, *pairs = c_.pairs() + t * kChunk, *d = c_.d() + t * kChunk;
    const Vector minus_beta = hn::Set(Tag(), -c_.beta[t]);
    d_a[t] = 0.0F;  // the diagonal is not part of A
    Vector of_p = hn::Zero(Tag()), minus_of_a = hn::Zero(Tag());
    for_lanes(0, t + 1, [&](auto part, std::int64_t i) HWY_ATTR {
      const Vector by_p = hn::Mul(part.load(d_p + i), part.load(p + i));
      const Vector minus_by_a = hn::Mul(part.load(d_a + i), part.load(pairs + i));
      of_p = hn::Add(of_p, by_p);
      minus_of_a = hn::Add(minus_of_a, minus_by_a);
      const Vector both = hn::MulAdd(minus_by_a, minus_beta, by_p);
      part.store(hn::Sub(part.load(d_total_ + i), both), d_total_ + i);
      part.store(hn::Mul(part.load(d_p + i), part.load(d + i)), d_p + i);
      part.store(hn::Mul(hn::Mul(part.load(d_a + i), part.load(d + i)), minus_beta), d_a + i);
    });
    const float by_beta = -sum_of(minus_of_a);  // sum_s dA_ts (k_t . k_s) D_ts
    d_total_[t] += sum_of(of_p) + c_.beta[t] * by_beta;
    d_.beta[begin_ + t] += by_beta;
    std::fill(d_p + t + 1, d_p + n, 0.0F);
    std::fill(d_a + t, d_a + n, 0.0F);
  }

  // G_t sums the decays up to t.
  void totals() {
    float sum = 0.0F;
    for (std::int64_t t = c_.n - 1; t >= 0; --t) {
      sum += d_total_[t];
      d_.log_decay[begin_ + t] = sum;
    }
  }

  DeltaShape s_;
  DeltaHead head_;
  DeltaSaved<const float> saved_;
  Strided<const float> d_o_;
  DeltaGradients d_;
  Chunk c_;
  std::int64_t begin_ = 0;
  const float* state_ = nullptr;  // before the chunk
  Strided<const float> u_{};
  float d_total_[kChunk];    // gradient of G
  Buffer d_state_, turned_;  // [e, w]; a state or its gradient transposed, [w, e]
  Buffer d_u_, u_t_;         // [n, w], [w, n]
  Buffer d_p_, d_a_, work_;  // [n, n]
  Buffer keys_, columns_;    // [n, e], [e, n]
};

}  // namespace delta_rule

void DeltaRuleBackward(const DeltaShape& s, const DeltaHead& head, const DeltaSaved<const float>& saved,
                       Strided<const float> d_o, const DeltaGradients& d) {
  delta_rule::BackwardPass(s, head, saved, d_o, d).run();
}

}  // namespace headroom::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::kernels {

HWY_EXPORT(DeltaRule);
HWY_EXPORT(DeltaRuleBackward);

void delta_rule(const DeltaShape& shape, const DeltaHead& head, const float* before, const DeltaSaved<float>& saved,
                Strided<float> o, float* after) {
  HWY_DYNAMIC_DISPATCH(DeltaRule)(shape, head, before, saved, o, after);
}
void delta_rule_backward(const DeltaShape& shape, const DeltaHead& head, const DeltaSaved<const float>& saved,
                         Strided<const float> d_o, const DeltaGradients& d) {
  HWY_DYNAMIC_DISPATCH(DeltaRuleBackward)(shape, head, saved, d_o, d);
}

}  // namespace headroom::kernels
#endif
