#include "data/tokens/example_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "headroom/core/error.h"

namespace headroom::data {
namespace example_order_test {

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

TEST(ExampleOrder, UsesEveryExampleOnceAnEpoch) {
  for (const bool by_length : {false, true}) {
    ExampleOrder o = order(by_length);
    EXPECT_EQ(o.per_epoch(), 125);
    std::vector<std::vector<std::int64_t>> epochs(2);
    for (auto& epoch : epochs) {
      std::set<std::int64_t> seen;
      for (std::int64_t i = 0; i < o.per_epoch(); ++i) {
        for (const std::int64_t example : o.next()) {
          EXPECT_TRUE(seen.insert(example).second);
          EXPECT_TRUE(example >= 0 && example < 1003);
          epoch.push_back(example);
        }
      }
      EXPECT_EQ(seen.size(), 1000U);
    }
    EXPECT_NE(epochs[0], epochs[1]) << "every epoch has its own order";
  }
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

TEST(ExampleOrder, ContinuesFromAnyPosition) {
  for (const bool by_length : {false, true}) {
    ExampleOrder whole = order(by_length);
    for (int i = 0; i < 300; ++i) {
      const DataPosition position = whole.position();
      const std::vector<std::int64_t> expected = whole.next();
      ExampleOrder part = order(by_length);
      part.seek(position);
      EXPECT_EQ(part.next(), expected) << i;
    }
  }
  EXPECT_NE(order(true).next(), order(true, 1003, 8, 4).next()) << "another seed, another order";
}

// Returns the order of a data set stored in files of 0 to 200 examples.
ExampleOrder in_files(std::int64_t together, std::uint64_t seed = 3) {
  OrderOptions options{.examples = 1000, .batch = 8, .seed = seed};
  options.files = {.sizes = {150, 50, 0, 200, 100, 150, 150, 200}, .together = together};
  if (together > 0) {
    options.length = [](std::int64_t i) { return i % 7; };  // ignored for data sets stored in files
  }
  return {std::move(options), "set"};
}

TEST(ExampleOrder, ReadsFilesTogether) {
  const std::vector<std::int64_t> ends = {150, 200, 200, 400, 500, 650, 800, 1000};
  ExampleOrder o = in_files(80);
  std::vector<std::vector<std::int64_t>> epochs(2);
  for (auto& epoch : epochs) {
    for (std::int64_t i = 0; i < o.per_epoch(); ++i) {
      const std::vector<std::int64_t> batch = o.next();
      epoch.insert(epoch.end(), batch.begin(), batch.end());
    }
    const std::set<std::int64_t> seen(epoch.begin(), epoch.end());
    EXPECT_EQ(seen.size(), 1000U);
    EXPECT_EQ(*seen.rbegin(), 999);
    for (std::size_t begin = 0; begin < epoch.size(); begin += 80) {
      std::set<std::size_t> files;
      for (std::size_t i = begin; i < std::min(begin + 80, epoch.size()); ++i) {
        files.insert(static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), epoch[i]) - ends.begin()));
      }
      EXPECT_LE(files.size(), 3U) << "80 in a row lie in two files, or around the small one";
    }
    EXPECT_FALSE(std::is_sorted(epoch.begin(), epoch.begin() + 8));
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(in_files(80).next(), in_files(80, 4).next());
  ExampleOrder all = in_files(0), plain = order(false, 1000);
  EXPECT_EQ(all.next(), plain.next()) << "0: as if they were no files";
  ExampleOrder whole = in_files(80);
  for (int i = 0; i < 300; ++i) {
    ExampleOrder part = in_files(80);
    part.seek(whole.position());
    EXPECT_EQ(part.next(), whole.next()) << i;
  }
}

TEST(ExampleOrder, RefusesInvalidPositions) {
  EXPECT_THROW(order(false, 7), UserError);
  ExampleOrder o = order(true);
  EXPECT_THROW(o.seek({.epoch = 0, .step = 125}), UserError);
  EXPECT_THROW(o.seek({.epoch = -1, .step = 0}), UserError);
}

}  // namespace example_order_test
}  // namespace headroom::data
