// Tests that every operator has all its dispatch keys; without one of them, gradients would vanish silently.
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include "engine/ops/expert_linear/expert_linear_operator.h"
#include "headroom/ops/linear.h"

namespace headroom::ops::registration_test {

// These public operators are composed of the operators below.
const std::set<std::string> kPublic = {
    "adamw_step",       "attention", "dropout",          "expert_linear",         "head_map",
    "head_map_factors", "linear",    "linear_attention", "linear_attention_step", "linear_cross_entropy",
    "muon_step"};
const std::set<std::string> kFused = {"attention_fused",   "dropout_fused", "expert_linear_fused",
                                      "gated_delta_fused", "linear_fused",  "linear_cross_entropy_fused",
                                      "prefix_product",    "row_terms",     "short_convolution_fused"};
const std::set<std::string> kWithoutDerivative = {"head_map_factors_fused"};

TEST(Registration, EveryOperatorHasItsDispatchKeys) {
  // The call loads the library.
  expert_linear({.input = at::ones({1, 1}), .bank = at::ones({1, 1, 1}), .index = at::zeros({1, 1, 1}, at::kLong)});
  std::set<std::string> found, expected = kPublic;
  for (const std::string& name : kFused) {
    expected.insert(name);
    if (name != "prefix_product") {  // its gradient is a prefix product
      expected.insert(name + "_backward");
    }
  }
  expected.insert(kWithoutDerivative.begin(), kWithoutDerivative.end());
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.getNamespace() != std::optional<c10::string_view>("headroom")) {
      continue;
    }
    const std::string own = name.name.substr(std::string("headroom::").size());
    if (own.starts_with("toy")) {  // other tests' operators
      continue;
    }
    found.insert(own);
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name.name.c_str(), name.overload_name.c_str());
    const auto has = [&](c10::DispatchKey key) { return op.hasKernelForDispatchKey(key); };
    const bool made_of_others = kPublic.count(own) > 0;
    EXPECT_EQ(has(c10::DispatchKey::CompositeImplicitAutograd), made_of_others) << name.name;
    EXPECT_EQ(has(c10::DispatchKey::CPU), !made_of_others) << name.name;
    EXPECT_EQ(has(c10::DispatchKey::Meta), !made_of_others) << name.name;
    EXPECT_EQ(has(c10::DispatchKey::Autograd), kFused.count(own) > 0) << name.name;
  }
  EXPECT_EQ(found, expected);
}

TEST(Registration, MetaTensorsGetShapes) {
  const auto meta = at::TensorOptions(at::kFloat).device(at::kMeta);
  FusedExpertLinear::Arguments in;
  in.input = at::empty({5, 3}, meta);
  in.bank = at::empty({4, 3, 7}, meta);
  in.index = at::empty({5, 2, 1}, meta.dtype(at::kLong));
  EXPECT_EQ(call<FusedExpertLinear>(in).result.sizes(), at::IntArrayRef({5, 2, 7}));
  in.sum_heads = true;
  EXPECT_EQ(call<FusedExpertLinear>(in).result.sizes(), at::IntArrayRef({5, 7}));
}

}  // namespace headroom::ops::registration_test
