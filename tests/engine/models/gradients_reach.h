// Whether a loss reaches every parameter of a model.
#pragma once

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "headroom/nn/parameters.h"

namespace headroom::testing {

// A finite gradient for each parameter, and one that is not 0: but for those that `may_be_zero` ends the name of.
inline void expect_gradients(const nn::Parameters& parameters, const std::string& model,
                             const std::set<std::string>& may_be_zero = {}) {
  for (const nn::Parameter& p : parameters.all()) {
    ASSERT_TRUE(p.tensor.grad().defined()) << model << ": " << p.name;
    EXPECT_TRUE(p.tensor.grad().isfinite().all().item<bool>()) << model << ": " << p.name;
    const std::string last = p.name.substr(p.name.rfind('.') + 1);
    if (!may_be_zero.contains(last)) {
      EXPECT_GT(p.tensor.grad().abs().max().item<double>(), 1e-9) << model << ": " << p.name;
    }
  }
}

}  // namespace headroom::testing
