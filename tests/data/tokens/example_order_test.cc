#include "data/tokens/example_order.h"

#include <gtest/gtest.h>

namespace headroom::data::example_order_test {

std::int64_t length_of(std::int64_t example) {
  return 1 + example * 7919 % 50;
}

ExampleOrder order(bool by_length, std::int64_t examples = 1003, std::int64_t batch = 8, std::uint64_t seed = 3) {
  OrderOptions options{.examples = examples, .batch = batch, .seed = seed};
  if (by_length) {
    options.length = length_of;
  }
  return {std::move(options), "set"};
}

TEST(ExampleOrder, GroupsExamplesOfSimilarLength) {
  std::int64_t spread[2] = {0, 0};
  for (const bool by_length : {false, true}) {
    ExampleOrder o = order(by_length);
    std::vector<std::int64_t> shortest;
    for (int i = 0; i < 125; ++i) {
      const std::vector<std::int64_t> batch = o.next();
      const auto [low, high] = std::minmax_element(
          batch.begin(), batch.end(), [](std::int64_t a, std::int64_t b) { return length_of(a) < length_of(b); });
      spread[by_length ? 1 : 0] += length_of(*high) - length_of(*low);
      shortest.push_back(length_of(*low));
    }
    EXPECT_FALSE(std::is_sorted(shortest.begin(), shortest.begin() + ExampleOrder::kPool)) << "not from short to long";
  }
  EXPECT_LT(spread[1] * 5, spread[0]);
}

TEST(ExampleOrder, RefusesInvalidPositions) {
  EXPECT_THROW(order(false, 7), UserError);
  ExampleOrder o = order(true);
  EXPECT_THROW(o.seek({.epoch = 0, .step = 125}), UserError);
  EXPECT_THROW(o.seek({.epoch = -1, .step = 0}), UserError);
}

}  // namespace headroom::data::example_order_test
