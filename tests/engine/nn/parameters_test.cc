#include "headroom/nn/parameters.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

namespace headroom::nn::parameters_test {

void build_all(const Builder& build, at::IntArrayRef shape) {
  build.random("normal", shape, Distribution::normal(0.5));
  build.random("truncated", shape, Distribution::truncated_normal(0.5));
  build.random("uniform", shape, Distribution::uniform(0.5));
  build.custom("made", shape, [&] { return build.draw(shape, Distribution::normal(0.5)).mul_(2.0); });
  build.constant("constant", shape, 3.0);
  build.buffer("buffer", shape, 4.0);
}

TEST(Builder, NothingIsDrawnOrAllocatedForTheMetaDevice) {
  Parameters parameters;
  const std::int64_t huge = std::int64_t{1} << 30;  // the tensors have 2^50 elements
  build_all(Builder(parameters, ParameterSource(7, at::TensorOptions(at::kFloat).device(at::kMeta))), {huge, 1 << 20});
  ASSERT_EQ(parameters.stored().size(), 6U);
  for (const Parameter& p : parameters.stored()) {
    EXPECT_TRUE(p.tensor.is_meta()) << p.name;
    EXPECT_EQ(p.tensor.sizes(), (at::IntArrayRef{huge, 1 << 20})) << p.name;
  }
}

TEST(Builder, ASeedMeansTheSameNumbersOnEveryDevice) {
  if (!at::hasCUDA()) {
    GTEST_SKIP() << "no GPU here";
  }
  Parameters here, there;
  build_all(Builder(here, ParameterSource(7)), {33, 7});
  build_all(Builder(there, ParameterSource(7, at::TensorOptions(at::kFloat).device(at::kCUDA))), {33, 7});
  for (std::size_t i = 0; i < here.stored().size(); ++i) {
    EXPECT_TRUE(there.stored()[i].tensor.is_cuda());
    EXPECT_TRUE(there.stored()[i].tensor.cpu().equal(here.stored()[i].tensor)) << here.stored()[i].name;
  }
}

TEST(Builder, TakesGivenTensorsInOrderOfCreation) {
  Parameters first, second;
  build_all(Builder(first, ParameterSource(7)), {3, 2});
  std::vector<at::Tensor> tensors;
  for (const Parameter& p : first.in_creation_order()) {
    tensors.push_back(p.tensor);
  }
  const Builder again(second, ParameterSource(tensors));
  build_all(again, {3, 2});
  again.require_all_taken();
  ASSERT_EQ(second.in_creation_order().size(), 6U);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_TRUE(second.in_creation_order()[i].tensor.is_same(tensors[i]));
    EXPECT_EQ(second.in_creation_order()[i].name, first.in_creation_order()[i].name);
    EXPECT_EQ(second.in_creation_order()[i].buffer, first.in_creation_order()[i].name == "buffer");
  }
}

TEST(Builder, RefusesTensorsThatTheModelDoesNotHave) {
  const auto make_two = [](std::vector<at::Tensor> tensors) {
    Parameters parameters;
    const Builder build(parameters, ParameterSource(std::move(tensors)));
    build.constant("a", {3}, 0.0);
    build.constant("b", {2}, 0.0);
    build.require_all_taken();
  };
  const at::Tensor a = at::zeros({3}), b = at::zeros({2});
  EXPECT_NO_THROW(make_two({a, b}));
  EXPECT_THROW(make_two({a}), Error);
  EXPECT_THROW(make_two({b, a}), Error);
  EXPECT_THROW(make_two({a, b.to(at::kDouble)}), Error);
  EXPECT_THROW(make_two({a, b, b}), Error);
}

}  // namespace headroom::nn::parameters_test
