#include "engine/nn/random.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/nn/linear.h"

namespace headroom::nn::random_test {

Context drawing(std::uint64_t seed, std::int64_t first_row = 0, std::int64_t rows = 1000) {
  Context context{.training = true, .random = Randomness{.seed = seed, .first_row = first_row, .rows = rows}};
  return context;
}

const at::Tensor kLike = at::zeros({1000, 1000}, at::kDouble);

double average(const at::Tensor& x) {
  return x.mean().item<double>();
}

// Returns the correlation of two samples of mean 0 and variance 1, in standard deviations of the mean product.
double correlation(const at::Tensor& a, const at::Tensor& b) {
  return average(a * b) * std::sqrt(static_cast<double>(a.numel()));
}

at::Tensor standardised(const at::Tensor& uniform_numbers) {
  return (uniform_numbers - 0.5) * std::sqrt(12.0);
}

void expect_no_kinship(const at::Tensor& z, const std::function<at::Tensor(const Context&, std::string_view)>& draw) {
  EXPECT_LT(std::abs(correlation(z, z.roll(1, 1))), 5.0) << "the next place";
  EXPECT_LT(std::abs(correlation(z, z.roll(1, 0))), 5.0) << "the next row";
  EXPECT_LT(std::abs(correlation(z, draw(drawing(2), "a"))), 5.0) << "the next seed";
  EXPECT_LT(std::abs(correlation(z, draw(drawing(1), "b"))), 5.0) << "another use";
  EXPECT_LT(std::abs(correlation(z, draw(drawing(1).in("layer1"), "a"))), 5.0) << "another scope";
  EXPECT_LT(std::abs(correlation(z, draw(drawing(1, 1000), "a"))), 5.0) << "other rows";
  EXPECT_LT(std::abs(correlation(z.square() - 1.0, (z.roll(1, 1)).square() - 1.0)), 12.0) << "the next place's size";
}

TEST(Random, UniformNumbersAreUniformAndIndependent) {
  const auto draw = [](const Context& context, std::string_view use) {
    return standardised(uniform(kLike, context, use));
  };
  const at::Tensor u = uniform(kLike, drawing(1), "a"), z = standardised(u);
  EXPECT_LT(std::abs(average(z)) * 1e3, 5.0);
  EXPECT_LT(std::abs(average(z.square()) - 1.0) / std::sqrt(0.8) * 1e3, 5.0);
  EXPECT_LT(standardised(u).mean(0).abs().max().item<double>() * std::sqrt(1e3), 6.0) << "columns";
  EXPECT_LT(standardised(u).mean(1).abs().max().item<double>() * std::sqrt(1e3), 6.0) << "rows";
  EXPECT_GE(u.min().item<double>(), 0.0);
  EXPECT_LT(u.max().item<double>(), 1.0);
  const at::Tensor tenths = at::bincount((u * 10.0).floor().to(at::kLong).reshape({-1}), {}, 10);
  EXPECT_LT((tenths - 100000).abs().max().item<std::int64_t>(), 5 * 300);
  expect_no_kinship(z, draw);
}

TEST(Random, NormalNumbersAreNormalAndIndependent) {
  const auto draw = [](const Context& context, std::string_view use) { return normal(kLike, context, use); };
  const at::Tensor z = draw(drawing(1), "a");
  EXPECT_LT(std::abs(average(z)) * 1e3, 5.0);
  EXPECT_LT(std::abs(average(z.square()) - 1.0) / std::sqrt(2.0) * 1e3, 5.0);
  EXPECT_LT(std::abs(average(z.pow(4)) - 3.0) / std::sqrt(96.0) * 1e3, 5.0);
  for (const double edge : {-2.0, -0.5, 0.0, 1.0, 3.0}) {
    const double share = 0.5 * (1.0 + std::erf(edge / std::sqrt(2.0)));
    const double deviation = std::sqrt(share * (1.0 - share));
    EXPECT_LT(std::abs(average(z.lt(edge).to(at::kDouble)) - share) / deviation * 1e3, 5.0) << edge;
  }
  expect_no_kinship(z, draw);
}

TEST(Random, FloatingTypesSeeTheSameNumbers) {
  const Context context = drawing(3);
  const at::Tensor like = kLike.to(at::kFloat);
  EXPECT_TRUE(uniform(like, context, "a").to(at::kDouble).equal(uniform(kLike, context, "a")));
  EXPECT_TRUE(normal(like, context, "a").to(at::kDouble).equal(normal(kLike, context, "a")));
}

TEST(Random, PartsOfABatchDrawWhatTheWholeDraws) {
  // The axes are folded: 6 rows of 5 tokens with 4 elements each.
  const at::Tensor whole = at::zeros({30, 4}), part = at::zeros({10, 4});
  const at::Tensor u = uniform(whole, drawing(1, 0, 6), "a"), z = normal(whole, drawing(1, 0, 6), "a"),
                   d = dropout(at::ones({6, 5, 4}), 0.5, drawing(1, 0, 6), "a");
  for (std::int64_t i = 0; i < 3; ++i) {
    const Context context = drawing(1, 2 * i, 2);
    EXPECT_TRUE(uniform(part, context, "a").equal(u.narrow(0, 10 * i, 10)));
    EXPECT_TRUE(normal(part, context, "a").equal(z.narrow(0, 10 * i, 10)));
    EXPECT_TRUE(dropout(at::ones({2, 5, 4}), 0.5, context, "a").equal(d.narrow(0, 2 * i, 2)));
    EXPECT_TRUE(dropout(at::ones({10, 4}), 0.5, context, "a").equal(d.view({30, 4}).narrow(0, 10 * i, 10)));
  }
}

// The dropout mask of a sequence must not depend on the padding of its batch.
TEST(Random, RowsDoNotDependOnTheirLength) {
  const at::Tensor longer = dropout(at::ones({4, 9, 8}), 0.5, drawing(1, 0, 4), "a");
  EXPECT_TRUE(dropout(at::ones({4, 5, 8}), 0.5, drawing(1, 0, 4), "a").equal(longer.narrow(1, 0, 5)));
}

TEST(Random, UsesOfOneStepShareNoMask) {
  const Context context = drawing(1, 0, 100);
  const at::Tensor ones = at::ones({100, 1000});
  const auto mask = [&](const Context& where, std::string_view use) {
    return dropout(ones, 0.5, where, use).ne(0).to(at::kDouble) * 2.0 - 1.0;
  };
  const std::vector<at::Tensor> masks = {mask(context, "attention"), mask(context, "ffn"),
                                         mask(context.in("ffn"), "hidden"), mask(context.in("layer0"), "attention"),
                                         mask(context.in("layer1"), "attention")};
  for (std::size_t i = 0; i < masks.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      EXPECT_LT(std::abs(correlation(masks[i], masks[j])), 5.0) << i << " and " << j;
    }
  }
}

TEST(Random, ImplementationsAndThreadsDropTheSamePlaces) {
  const at::Tensor x = at::rand({7, 333, 11}).add_(0.5);
  Context context = drawing(5, 3, 7);
  context.implementation = Implementation::reference;
  const at::Tensor reference = dropout(x, 0.3, context, "a");
  context.implementation = Implementation::fused;
  const int before = at::get_num_threads();
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    const at::Tensor fused = dropout(x, 0.3, context, "a");
    EXPECT_TRUE(fused.eq(0.0).equal(reference.eq(0.0)));
    EXPECT_TRUE(at::allclose(fused, reference, 2e-7, 0.0));
  }
  at::set_num_threads(before);
}

TEST(Random, RefusesInvalidPlaces) {
  const Context context{.training = true};
  EXPECT_THROW(dropout(at::ones({4}), 0.5, context, "a"), Error);
  EXPECT_THROW(uniform(at::ones({4, 5}), drawing(1, 0, 3), "a"), Error);
}

}  // namespace headroom::nn::random_test
