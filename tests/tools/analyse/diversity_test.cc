#include "tools/analyse/measures.h"

#include <gtest/gtest.h>

#include "small_model.h"

namespace headroom::analyse::diversity_test {

std::vector<Circuit> random_circuits(std::int64_t n, bool equal) {
  std::vector<Circuit> heads;
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(std::uint64_t{2});
  for (std::int64_t h = 0; h < n; ++h) {
    if (equal && h > 0) {
      heads.push_back({.left = {heads[0].left[0] * 2.0}, .right = heads[0].right});
      continue;
    }
    heads.push_back(
        {.left = {at::randn({10, 3}, generator, at::kDouble)}, .right = {at::randn({10, 3}, generator, at::kDouble)}});
  }
  return heads;
}

TEST(Diversity, EqualHeadsHaveZero) {
  EXPECT_NEAR(diversity(random_circuits(4, /*equal=*/true)), 0.0, 1e-9);
  // Concatenated, the heads have the principal components of one head.
  EXPECT_NEAR(captured_variance(random_circuits(4, true))[2].item<double>(), 1.0, 1e-9);
}

TEST(Diversity, OrthogonalHeadsHaveOne) {
  std::vector<Circuit> heads;
  for (std::int64_t h = 0; h < 3; ++h) {
    const at::Tensor own = at::eye(9, at::kDouble).narrow(1, 3 * h, 3);
    heads.push_back({.left = {own}, .right = {own}});
  }
  EXPECT_NEAR(diversity(heads), 1.0, 1e-9);
  // All nine directions have equal variance.
  const at::Tensor even = at::arange(1, 10, at::kDouble) / 9.0;
  EXPECT_TRUE(at::allclose(captured_variance(heads), even));
  EXPECT_TRUE(std::isnan(diversity({heads[0]})));
}

// The diversity of heads with experts must equal the diversity of their explicit matrices.
TEST(Diversity, MatchesTheMatrices) {
  std::vector<Circuit> heads = random_circuits(3, /*equal=*/false);
  heads[1].right.push_back(heads[0].right[0].roll(1, 0));
  std::vector<at::Tensor> matrices;
  for (const Circuit& head : heads) {
    for (const at::Tensor& r : head.right) {
      matrices.push_back(head.left[0].mm(r.t()));
    }
  }
  const at::Tensor squares = at::linalg_svdvals(at::cat(matrices, 1)).square();
  EXPECT_TRUE(at::allclose(captured_variance(heads), squares.cumsum(0) / squares.sum(), 1e-8, 1e-10));
  std::vector<at::Tensor> vectors;
  for (const at::Tensor& matrix : matrices) {
    vectors.push_back(matrix.flatten() / matrix.norm());
  }
  const at::Tensor spread = at::linalg_svdvals(at::stack(vectors)).square();
  const double first = (spread[0] / spread.sum()).item<double>();
  EXPECT_NEAR(diversity(heads), (1.0 - first) / (1.0 - 0.25), 1e-8);
}

// Compares with W_Q W_K^T and W_V W_O of the model's parameters.
TEST(Diversity, TakesTheParametersOfALayer) {
  for (const std::string projection : {"dense", "experts"}) {
    const store::OpenedModel opened = small::small_model(fmt::format("attention.projection={}", projection));
    const Findings found = small::found(opened, "diversity", "");
    const ModelRunner runner(opened);
    const auto parameter = [&](const std::string& name) {
      return runner.parameter("layer1.attention." + name).to(at::kDouble);
    };
    std::vector<at::Tensor> qk, ov;
    for (std::int64_t h = 0; h < 2; ++h) {
      qk.push_back(parameter("w_q").select(1, h).mm(parameter("w_k").select(1, h).t()));
      if (projection == "dense") {
        ov.push_back(parameter("w_v").select(1, h).mm(parameter("w_o")[h]));
        continue;
      }
      for (std::int64_t in = 0; in < 4; ++in) {
        for (std::int64_t out = 0; out < 4; ++out) {
          ov.push_back(parameter("w_v")[h][in].mm(parameter("w_o")[h][out]));
        }
      }
    }
    for (const auto& [name, matrices] : {std::pair("qk", qk), std::pair("ov", ov)}) {
      const at::Tensor squares = at::linalg_svdvals(at::cat(matrices, 1)).square();
      EXPECT_TRUE(at::allclose(found.tensors.at(std::string("layer1.attention.") + name),
                               squares.cumsum(0) / squares.sum(), 1e-8, 1e-8))
          << projection << " " << name;
    }
  }
}

// If experts are groups of heads, each head uses the key and value of its place in the group.
TEST(Diversity, TakesEveryHeadOfAGroup) {
  config::ModelOptions o = small::small_options();
  small::set_groups_of_heads(o.attention);
  const store::OpenedModel opened = small::small_model(o);
  const Findings found = small::found(opened, "diversity", "");
  const auto parameter = [&](const std::string& name) {
    return ModelRunner(opened).parameter("layer1.attention." + name).to(at::kDouble);
  };
  std::vector<at::Tensor> qk, ov;
  for (std::int64_t g = 0; g < 2; ++g) {
    for (std::int64_t x = 0; x < parameter("w_q").size(0); ++x) {
      qk.push_back(parameter("w_q")[x].select(1, g).mm(parameter("w_k").select(1, g).t()));
      ov.push_back(parameter("w_v").select(1, g).mm(parameter("w_o")[x][g]));
    }
  }
  for (const auto& [name, matrices] : {std::pair("qk", qk), std::pair("ov", ov)}) {
    const at::Tensor squares = at::linalg_svdvals(at::cat(matrices, 1)).square();
    EXPECT_TRUE(at::allclose(found.tensors.at(std::string("layer1.attention.") + name),
                             squares.cumsum(0) / squares.sum(), 1e-8, 1e-8))
        << name;
  }
}

}  // namespace headroom::analyse::diversity_test
