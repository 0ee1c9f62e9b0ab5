// A lost registration makes gradients vanish silently: every operator must have all its dispatch keys.
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include <string>

#include "headroom/ops/expert_linear.h"

namespace headroom::ops {
namespace registration_test {

TEST(Registration, EveryOperatorHasItsDispatchKeys) {
  // Pulls the library in, then looks at all that it registered.
  expert_linear({.input = at::ones({1, 1}), .bank = at::ones({1, 1, 1}), .index = at::zeros({1, 1, 1}, at::kLong)});
  int found = 0;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.getNamespace() != std::optional<c10::string_view>("headroom")) {
      continue;
    }
    ++found;
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name.name.c_str(), name.overload_name.c_str());
    const bool backward = name.name.ends_with("_backward");
    EXPECT_TRUE(op.hasKernelForDispatchKey(c10::DispatchKey::CPU)) << name.name;
    EXPECT_TRUE(op.hasKernelForDispatchKey(c10::DispatchKey::Meta)) << name.name;
    EXPECT_TRUE(backward || op.hasKernelForDispatchKey(c10::DispatchKey::Autograd)) << name.name;
  }
  EXPECT_GE(found, 8);
}

TEST(Registration, MetaTensorsGetShapes) {
  const auto meta = at::TensorOptions(at::kFloat).device(at::kMeta);
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("headroom::expert_linear", "")
                             .typed<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                               const std::optional<at::Tensor>&, bool)>();
  const at::Tensor index = at::empty({5, 2, 1}, meta.dtype(at::kLong));
  EXPECT_EQ(op.call(at::empty({5, 3}, meta), at::empty({4, 3, 7}, meta), index, {}, false).sizes(),
            at::IntArrayRef({5, 2, 7}));
  EXPECT_EQ(op.call(at::empty({5, 3}, meta), at::empty({4, 3, 7}, meta), index, {}, true).sizes(),
            at::IntArrayRef({5, 7}));
}

}  // namespace registration_test
}  // namespace headroom::ops
