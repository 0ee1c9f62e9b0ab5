// Elementwise steps of a score's formula on vectors of float32, and the sums of its gradients. Every size n is a
// multiple of kFormulaLanes: callers pad.
#pragma once

#include <cstdint>
#include <vector>

#include "foundation/core/formula/program.h"

namespace headroom::kernels {

constexpr std::int64_t kFormulaLanes = 16;  // no instruction set in use has longer vectors of floats

// The values of one node for n pairs: element k is data[k * step]. With step 0, data holds kFormulaLanes equal
// elements.
struct FormulaValue {
  float* data = nullptr;
  std::int64_t step = 0;
};

struct FormulaTable {
  const float* data;
  std::int64_t size;
};

// values[to] = op(values[a], values[b], values[c]). With c, add is c + a b, sub is c - a b and mul is a b - c.
struct FormulaStep {
  formula::Op op;
  int to, a, b, c;
  float exponent;  // of a power
  int table;
  bool of_scores;  // false: depends on positions only; divisions are then exact
};

// Returns the row of a table for an index: the nearest row in [0, size), 0 for NaN.
inline std::int64_t formula_index(float index, std::int64_t size) {
  return index > 0.0F
             ? static_cast<std::int64_t>(index < static_cast<float>(size) ? index : static_cast<float>(size - 1))
             : 0;
}

void run_formula(const std::vector<FormulaStep>& steps, const FormulaValue* values, const FormulaTable* tables,
                 std::int64_t n);

// Replaces elements where `mask` is 0 by `hidden`.
void formula_hide(const FormulaValue& mask, float hidden, std::int64_t n, float* to);
// Returns sum_k g_k x_k. Here and below, elements with g_k = 0 count as 0 even if x_k is infinite or NaN: a hidden
// key's gradient is 0.
float formula_dot(const float* g, const FormulaValue& x, std::int64_t n);
// to_k += g_k x_k
void formula_add(const float* g, const FormulaValue& x, std::int64_t n, float* to);
// g_k = g_k x_k factor
void formula_multiply(const FormulaValue& x, float factor, std::int64_t n, float* g);
// The non-zero elements among the first n: index of the first, index after the last, and their number. n need not be
// padded.
struct FormulaMaskRange {
  std::int64_t low, high, count;
};
FormulaMaskRange formula_mask_range(const FormulaValue& mask, std::int64_t n);

}  // namespace headroom::kernels
