// Tests that views made without the dispatcher equal the views of torch's operators.
#include "engine/ops/one_pass.h"

#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "headroom/core/error.h"

namespace headroom::ops::views_test {

void expect_same_view(const at::Tensor& got, const at::Tensor& expected) {
  EXPECT_EQ(got.sizes(), expected.sizes());
  EXPECT_EQ(got.strides(), expected.strides());
  EXPECT_EQ(got.const_data_ptr(), expected.const_data_ptr());
  EXPECT_EQ(got.scalar_type(), expected.scalar_type());
  EXPECT_TRUE(got.equal(expected));
}

TEST(Views, MatchTorchsOperators) {
  for (const bool inference : {false, true}) {
    const c10::InferenceMode mode(inference);
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kLong}) {
      const at::Tensor x = at::arange(120).to(type).view({2, 3, 4, 5}), part = x.narrow(0, 1, 1);
      expect_same_view(reshaped(x, {6, -1}), x.reshape({6, -1}));
      expect_same_view(reshaped(x, {120}), x.reshape({120}));
      expect_same_view(reshaped(part, {3, 4, 1, 5}), part.reshape({3, 4, 1, 5}));
      expect_same_view(transposed(part, 1, 2), part.transpose(1, 2));
      expect_same_view(narrowed(x, 2, 1, 2), x.narrow(2, 1, 2));
      expect_same_view(narrowed(transposed(x, 1, 3), 3, 2, 1), x.transpose(1, 3).narrow(3, 2, 1));
      const at::Tensor turned = x.transpose(0, 3);
      EXPECT_TRUE(reshaped(turned, {10, -1}).equal(turned.reshape({10, -1})));
      EXPECT_TRUE(reshaped(turned, {10, -1}).is_contiguous());
    }
    const at::Tensor none = at::empty({0, 4});
    EXPECT_EQ(reshaped(none, {0, 2, 2}).sizes(), at::IntArrayRef({0, 2, 2}));
    EXPECT_THROW(reshaped(at::empty({4}), {3}), c10::Error);
    EXPECT_ANY_THROW(narrowed(at::empty({4, 4}), 1, 3, 2));
  }
}

}  // namespace headroom::ops::views_test
