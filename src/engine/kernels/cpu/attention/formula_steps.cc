#include "formula_steps.h"

#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/cpu/attention/formula_steps.cc"
#include <hwy/foreach_target.h>
// Must follow foreach_target.h:
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include "engine/kernels/cpu/vectors-inl.h"
#include "score_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::HWY_NAMESPACE {
namespace formula_steps {

HWY_INLINE Vector constant(float value) {
  return hn::Set(Tag(), value);
}

// exp(-|x|), NaN for NaN
HWY_INLINE Vector decay(const Vector x) {
  return exp_or_zero(hn::Neg(hn::Abs(x)));
}

HWY_INLINE Vector exponential(const Vector x) {
  const Vector most = constant(104.0F);  // where Exp() ends; already infinite
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(Tag(), hn::IfThenElse(hn::Gt(x, most), most, x)));
}

// Returns `log_x`, corrected at the pole, at infinity and below the pole.
HWY_INLINE Vector at_poles(const Vector x, const Vector pole, const Vector log_x) {
  const Vector infinity = constant(std::numeric_limits<float>::infinity());
  const Vector r = hn::IfThenElse(hn::Eq(x, pole), hn::Neg(infinity), log_x);
  const Vector nan = constant(std::numeric_limits<float>::quiet_NaN());
  return hn::IfThenElse(hn::Eq(x, infinity), x, hn::IfThenElse(hn::Ge(x, pole), r, nan));
}

HWY_INLINE Vector logarithm(const Vector x) {
  return at_poles(x, hn::Zero(Tag()), hn::Log(Tag(), x));
}

HWY_INLINE Vector logarithm_of_1p(const Vector x) {
  return at_poles(x, constant(-1.0F), hn::Log1p(Tag(), x));
}

// log(1 + exp(-|x|))
HWY_INLINE Vector soft_corner(const Vector x) {
  return hn::Log1p(Tag(), decay(x));
}

HWY_INLINE Vector logistic(const Vector x) {
  const Vector e = decay(x), r = hn::Div(constant(1.0F), hn::Add(e, constant(1.0F)));
  return hn::IfThenElse(hn::Lt(x, hn::Zero(Tag())), hn::Mul(e, r), r);
}

// A rational approximation on the range where tanh() rounds to less than 1, with an error of a few ulp.
HWY_INLINE Vector hyperbolic_tangent(const Vector given) {
  const Vector most = constant(7.90531110763549805F);
  const Vector above = hn::IfThenElse(hn::Gt(given, most), most, given);  // unlike Min(), keeps NaN
  const Vector x = hn::IfThenElse(hn::Lt(above, hn::Neg(most)), hn::Neg(most), above), square = hn::Mul(x, x);
  Vector p = constant(-2.76076847742355e-16F);
  for (const float c : {2.00018790482477e-13F, -8.60467152213735e-11F, 5.12229709037114e-08F, 1.48572235717979e-05F,
                        6.37261928875436e-04F, 4.89352455891786e-03F}) {
    p = hn::MulAdd(p, square, constant(c));
  }
  Vector q = constant(1.19825839466702e-06F);
  for (const float c : {1.18534705686654e-04F, 2.26843463243900e-03F, 4.89352518554385e-03F}) {
    q = hn::MulAdd(q, square, constant(c));
  }
  return hn::Div(hn::Mul(x, p), q);
}

HWY_INLINE Vector whole_power(const Vector x, std::int64_t exponent) {
  Vector r = constant(1.0F), square = x;
  for (std::int64_t n = exponent < 0 ? -exponent : exponent; n > 0; n /= 2) {
    r = n % 2 == 1 ? hn::Mul(r, square) : r;
    square = hn::Mul(square, square);
  }
  return exponent < 0 ? hn::Div(constant(1.0F), r) : r;
}

HWY_INLINE Vector power(const Vector x, float exponent) {
  constexpr float kLargest = 64.0F;  // whole exponents by multiplication
  if (exponent == std::floor(exponent) && std::abs(exponent) <= kLargest) {
    return whole_power(x, static_cast<std::int64_t>(exponent));
  }
  return exponential(hn::Mul(constant(exponent), logarithm(x)));
}

HWY_INLINE Vector gathered(const FormulaTable& table, const Vector index) {
  const hn::RebindToSigned<Tag> whole;
  const Vector least = hn::IfThenElseZero(hn::Gt(index, hn::Zero(Tag())), index);  // 0 for NaN
  const Vector in_range = hn::Min(least, constant(static_cast<float>(table.size - 1)));
  return hn::GatherIndex(Tag(), table.data, hn::ConvertTo(whole, in_range));
}

struct Operands {
  FormulaValue a, b, c;
  float* to;
  std::int64_t n;
};

// Loads consecutive vectors of a value. A copy in a loop keeps the pointer in a register, whatever the loop stores.
class Reader {
 public:
  explicit Reader(const FormulaValue& value)
      : at_(value.data), step_(value.step * static_cast<std::int64_t>(hn::Lanes(Tag()))) {}
  HWY_INLINE Vector next() {
    const Vector v = hn::LoadU(Tag(), at_);
    at_ += step_;
    return v;
  }

 private:
  const float* at_;
  std::int64_t step_;
};

// to_k = f(operands' k-th elements)
template <class F, class... Values>
HWY_INLINE void elementwise(const Operands& x, const F& f, const Values&... values) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Tag()));
  const auto loop = [&f, lanes](float* begin, float* end, auto... readers) HWY_ATTR {
    for (float* at = begin; at < end; at += lanes) {
      hn::StoreU(f(readers.next()...), Tag(), at);
    }
  };
  loop(x.to, x.to + x.n, Reader(values)...);
}

template <class F>
HWY_INLINE void unary(const Operands& x, const F& f) {
  elementwise(x, f, x.a);
}
template <class F>
HWY_INLINE void binary(const Operands& x, const F& f) {
  elementwise(x, f, x.a, x.b);
}
template <class F>
HWY_INLINE void ternary(const Operands& x, const F& f) {
  elementwise(x, f, x.a, x.b, x.c);
}

void run_ternary(const FormulaStep& step, const Operands& x) {
  using formula::Op;
  switch (step.op) {
    case Op::add:
      return ternary(x, [](Vector a, Vector b, Vector c) HWY_ATTR { return hn::MulAdd(a, b, c); });
    case Op::sub:
      return ternary(x, [](Vector a, Vector b, Vector c) HWY_ATTR { return hn::NegMulAdd(a, b, c); });
    case Op::mul:
      return ternary(x, [](Vector a, Vector b, Vector c) HWY_ATTR { return hn::MulSub(a, b, c); });
    default:
      return ternary(
          x, [](Vector a, Vector b, Vector c) HWY_ATTR { return hn::IfThenElse(hn::Ne(a, hn::Zero(Tag())), b, c); });
  }
}

HWY_INLINE Vector floor_of_quotient(const Vector a, const Vector b) {
  return hn::Floor(hn::Div(a, b));
}

HWY_INLINE Vector number(const Vector v) {
  return v;
}
HWY_INLINE Vector number(const hn::Mask<Tag> mask) {
  return hn::IfThenElseZero(mask, constant(1.0F));
}

void run_operation(const FormulaStep& step, const Operands& x) {
  using formula::Op;
  const Vector zero = hn::Zero(Tag());
  const float exponent = step.exponent;
  if (step.op == Op::div && step.of_scores && x.b.step == 0) {
    const Vector factor = hn::Div(constant(1.0F), hn::LoadU(Tag(), x.b.data));
    return unary(x, [factor](Vector a) HWY_ATTR { return hn::Mul(a, factor); });
  }
  switch (step.op) {
#define HEADROOM_UNARY(op, text, of_doubles, of_tensors, ...) \
  case Op::op:                                                \
    return unary(x, [=](Vector a) HWY_ATTR { return number(__VA_ARGS__); });
#define HEADROOM_BINARY(op, text, of_doubles, of_tensors, ...) \
  case Op::op:                                                 \
    return binary(x, [=](Vector a, Vector b) HWY_ATTR { return number(__VA_ARGS__); });
#include "foundation/core/formula/operations.inc"
    default:
      return;
  }
}

}  // namespace formula_steps

void RunFormula(const std::vector<FormulaStep>& steps, const FormulaValue* values, const FormulaTable* tables,
                std::int64_t n) {
  for (const FormulaStep& step : steps) {
    const auto value = [&](int node) { return node < 0 ? FormulaValue{} : values[node]; };
    const formula_steps::Operands x{value(step.a), value(step.b), value(step.c), values[step.to].data, n};
    if (step.op == formula::Op::table) {
      const FormulaTable& table = tables[step.table];
      formula_steps::unary(x, [&](Vector a) HWY_ATTR { return formula_steps::gathered(table, a); });
    } else if (step.c >= 0) {
      formula_steps::run_ternary(step, x);
    } else {
      formula_steps::run_operation(step, x);
    }
  }
}

void FormulaHide(const FormulaValue& mask, float hidden, std::int64_t n, float* to) {
  const Vector zero = hn::Zero(Tag()), value = hn::Set(Tag(), hidden);
  formula_steps::binary({{to, 1}, mask, {}, to, n},
                        [=](Vector a, Vector m) HWY_ATTR { return hn::IfThenElse(hn::Eq(m, zero), value, a); });
}

namespace formula_steps {

HWY_INLINE Vector weighted(const Vector g, const Vector x) {
  return hn::IfThenZeroElse(hn::Eq(g, hn::Zero(Tag())), hn::Mul(g, x));
}

}  // namespace formula_steps

float FormulaDot(const float* g, const FormulaValue& x, std::int64_t n) {
  const Tag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  Vector sum = hn::Zero(d);
  formula_steps::Reader reader(x);
  for (std::int64_t k = 0; k < n; k += lanes) {
    sum = hn::Add(sum, formula_steps::weighted(hn::LoadU(d, g + k), reader.next()));
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

void FormulaAdd(const float* g, const FormulaValue& x, std::int64_t n, float* to) {
  formula_steps::ternary({{const_cast<float*>(g), 1}, x, {to, 1}, to, n}, [](Vector a, Vector b, Vector sum) HWY_ATTR {
    return hn::Add(sum, formula_steps::weighted(a, b));
  });
}

void FormulaMultiply(const FormulaValue& x, float factor, std::int64_t n, float* g) {
  const Vector f = hn::Set(Tag(), factor);
  formula_steps::binary({{g, 1}, x, {}, g, n},
                        [f](Vector a, Vector b) HWY_ATTR { return formula_steps::weighted(a, hn::Mul(b, f)); });
}

FormulaMaskRange FormulaMask(const FormulaValue& mask, std::int64_t n) {
  const Tag d;
  const Vector zero = hn::Zero(d), none = hn::Set(d, -1.0F), beyond = hn::Set(d, static_cast<float>(n));
  Vector first = beyond, last = none;
  std::size_t count = 0;
  for_lanes(0, n, [&](const auto lanes, std::int64_t k) HWY_ATTR {
    const Vector m = hn::LoadU(d, mask.data + k * mask.step);  // readable beyond n
    const auto visible = hn::Ne(lanes.or_else(m, zero), zero);
    const Vector place = hn::Iota(d, static_cast<float>(k));
    first = hn::Min(first, hn::IfThenElse(visible, place, beyond));
    last = hn::Max(last, hn::IfThenElse(visible, place, none));
    count += hn::CountTrue(d, visible);
  });
  return {static_cast<std::int64_t>(hn::GetLane(hn::MinOfLanes(d, first))),
          static_cast<std::int64_t>(hn::GetLane(hn::MaxOfLanes(d, last))) + 1, static_cast<std::int64_t>(count)};
}

}  // namespace headroom::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::kernels {

HWY_EXPORT(RunFormula);
HWY_EXPORT(FormulaHide);
HWY_EXPORT(FormulaDot);
HWY_EXPORT(FormulaAdd);
HWY_EXPORT(FormulaMultiply);
HWY_EXPORT(FormulaMask);

void run_formula(const std::vector<FormulaStep>& steps, const FormulaValue* values, const FormulaTable* tables,
                 std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(RunFormula)(steps, values, tables, n);
}
void formula_hide(const FormulaValue& mask, float hidden, std::int64_t n, float* to) {
  HWY_DYNAMIC_DISPATCH(FormulaHide)(mask, hidden, n, to);
}
float formula_dot(const float* g, const FormulaValue& x, std::int64_t n) {
  return HWY_DYNAMIC_DISPATCH(FormulaDot)(g, x, n);
}
void formula_add(const float* g, const FormulaValue& x, std::int64_t n, float* to) {
  HWY_DYNAMIC_DISPATCH(FormulaAdd)(g, x, n, to);
}
void formula_multiply(const FormulaValue& x, float factor, std::int64_t n, float* g) {
  HWY_DYNAMIC_DISPATCH(FormulaMultiply)(x, factor, n, g);
}
FormulaMaskRange formula_mask_range(const FormulaValue& mask, std::int64_t n) {
  return HWY_DYNAMIC_DISPATCH(FormulaMask)(mask, n);
}

}  // namespace headroom::kernels
#endif
