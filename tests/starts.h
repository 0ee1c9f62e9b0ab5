// Checks the initialisation of a model's parameters against a table that names every one of them.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "headroom/nn/parameters.h"

namespace headroom::testing {

enum class Law { constant, normal, truncated, uniform };

struct Start {
  Law law = Law::constant;
  double value = 0.0;  // the constant, or the standard deviation
};

using Starts = std::map<std::string, Start>;

inline Start constant(double value) {
  return {Law::constant, value};
}
inline Start normal(double deviation) {
  return {Law::normal, deviation};
}
inline Start truncated(double deviation) {
  return {Law::truncated, deviation};
}
// Returns the uniform law between -bound and bound.
inline Start uniform(double bound) {
  return {Law::uniform, bound / std::sqrt(3.0)};
}

// Expects that `value` can be a sample of `start`. The standard error of the mean of n values is sd / sqrt(n). The
// standard error of their deviation is at most sd / sqrt(2n), reached by the normal law. The limit is five standard
// errors, and there must be enough values to tell the laws apart.
inline void expect_start(const std::string& name, const at::Tensor& value, const Start& start) {
  const at::Tensor x = value.detach().to(at::kDouble);
  const double largest = x.abs().max().item<double>(), n = static_cast<double>(x.numel());
  if (start.law == Law::constant) {
    EXPECT_LE((x - start.value).abs().max().item<double>(), 1e-6 * std::abs(start.value)) << name;
    return;
  }
  ASSERT_GE(n, 250) << name << ": too few numbers to measure";
  EXPECT_NEAR(x.std().item<double>() / start.value, 1.0, 5.0 / std::sqrt(2.0 * n)) << name;
  EXPECT_LE(std::abs(x.mean().item<double>()) / start.value, 5.0 / std::sqrt(n)) << name;
  // The truncated law ends at two deviations, stretched by 1 / 0.8796 to restore the deviation; the uniform law ends at
  // sqrt(3) deviations. There are enough values for the largest to come close to the end.
  constexpr double kStretched = 2.0 / 0.8796;
  switch (start.law) {
    case Law::truncated:
      EXPECT_LE(largest / start.value, kStretched * 1.0001) << name;
      EXPECT_GE(largest / start.value, 0.9 * kStretched) << name;
      break;
    case Law::uniform:
      EXPECT_LE(largest / start.value, std::sqrt(3.0) * 1.0001) << name;
      EXPECT_GE(largest / start.value, 0.95 * std::sqrt(3.0)) << name;
      break;
    default:
      EXPECT_GE(largest / start.value, kStretched) << name;
  }
}

// Expects that the table lists exactly the parameters and buffers whose names begin with `prefix`, and that each is
// initialised as listed.
inline void expect_starts(const nn::Parameters& parameters, const Starts& expected, const std::string& what,
                          const std::string& prefix = "") {
  std::size_t found = 0;
  for (const nn::Parameter& parameter : parameters.stored()) {
    if (!parameter.name.starts_with(prefix)) {
      continue;
    }
    const auto start = expected.find(parameter.name.substr(prefix.size()));
    if (start == expected.end()) {
      ADD_FAILURE() << what << ": " << parameter.name << " is not in the table";
      continue;
    }
    expect_start(what + ": " + parameter.name, parameter.tensor, start->second);
    ++found;
  }
  EXPECT_EQ(found, expected.size()) << what;
}

}  // namespace headroom::testing
