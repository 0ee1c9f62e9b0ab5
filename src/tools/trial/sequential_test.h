// The statistical test of `headroom try`: is the mean of paired differences below zero? It is applied after every pair,
// so that a trial can stop early. docs/try.md states its error rates.
#pragma once

#include <vector>

#include "headroom/config/field.h"
#include "tools/compare/figures/statistics.h"

namespace headroom::trial {

enum class Decision { keep, discard, undecided };

}  // namespace headroom::trial

namespace headroom::config {
template <>
inline constexpr EnumNames kEnumNames<trial::Decision> = {"keep", "discard", "undecided"};
}  // namespace headroom::config

namespace headroom::trial {

struct TestOptions {
  int pairs = 8;                  // maximum number of pairs, at least 2
  double false_keep_rate = 0.05;  // maximum probability of keeping a change that has no effect
};

// The one-sided significance level of Student's t-test after pair n of options.pairs; 0 for n = 1. Half of
// false_keep_rate is spent on the last pair, the other half in equal parts on the pairs before it, so that, by the
// union bound, all tests together keep a change that is no better with a probability of at most false_keep_rate.
double level_after(int n, const TestOptions& options);

// What n = differences.size() pairs show. `differences` are change minus base, negative where the change is better;
// `base_deviation` is the standard deviation of the base's figure over its seeds, NaN if unknown.
//   keep       the t-test rejects "no better" at level_after(n)
//   discard    the mean exceeds kHopeless base_deviation / n, or a difference is not finite
//   undecided  neither; another pair can follow if n < options.pairs
Decision decide(const std::vector<double>& differences, double base_deviation, const TestOptions& options);
inline constexpr double kHopeless = 0.5;

// The mean of the differences and the two-sided interval that belongs to the test after these pairs: it excludes zero
// from above if and only if decide() keeps the change. Low and high are infinite for a single pair.
compare::Interval interval(const std::vector<double>& differences, const TestOptions& options);

}  // namespace headroom::trial
