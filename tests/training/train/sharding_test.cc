#include "training/train/ranks/gradient_reducer.h"

#include <gtest/gtest.h>

#include "headroom/ops/optimizers.h"

namespace headroom::train::sharding_test {

nn::Parameters parameters_of(const std::vector<std::int64_t>& sizes) {
  nn::Parameters parameters;
  for (const std::int64_t n : sizes) {
    parameters.add(std::to_string(parameters.all().size()), at::zeros({n}));
  }
  return parameters;
}

struct RankOfThree : ProcessGroup {
  explicit RankOfThree(int rank) {
    rank_ = rank;
    size_ = 3;
  }
};

TEST(Sharding, IsEvenAndCoversEverything) {
  const nn::Parameters parameters = parameters_of({1000, 40, 900, 300, 300, 7, 512, 64, 64});
  std::size_t owned = 0;
  for (int rank = 0; rank < 3; ++rank) {
    std::int64_t elements = 0;
    for (const Shard& shard : owned_shards(parameters, config::Optimizer::adamw, RankOfThree(rank))) {
      elements += shard.count();
      ++owned;
    }
    EXPECT_NEAR(static_cast<double>(elements), parameters.count() / 3.0, 80.0);
  }
  EXPECT_EQ(owned, all_shards(parameters, config::Optimizer::adamw, 3).size());
  EXPECT_EQ(owned_shards(parameters, config::Optimizer::adamw, alone()).size(), parameters.all().size());
}

TEST(Sharding, AShardIsAFlatView) {
  const at::Tensor whole = at::arange(12).view({3, 4});
  EXPECT_TRUE(view_of(whole, {.begin = 0, .end = 12}).is_same(whole));
  const at::Tensor view = view_of(whole, {.begin = 4, .end = 7});
  EXPECT_TRUE(at::equal(view, at::arange(4, 7)));
  view.fill_(0);
  EXPECT_EQ(whole[1][2].item<std::int64_t>(), 0);
}

// Every element of every parameter is in one bucket, of its shard's owner.
TEST(Layout, PutsEveryShardIntoBucketsOfItsOwner) {
  constexpr std::int64_t kUnit = parallel::kShardUnit, kMost = parallel::bucket_elements(3);
  const nn::Parameters parameters = parameters_of({3 * kMost + 5, 17, 40 * kUnit + 1, 200, kUnit, 0, 90 * kUnit, 3});
  for (const config::Optimizer optimizer : {config::Optimizer::adamw, config::Optimizer::muon}) {
    const Layout layout(all_shards(parameters, optimizer, 3), 3);
    std::int64_t end = 0;
    for (const Layout::Bucket& bucket : layout.buckets) {
      EXPECT_EQ(bucket.begin, end);
      EXPECT_GT(bucket.end, bucket.begin);
      EXPECT_LE(bucket.end - bucket.begin, kMost);
      end = bucket.end;
    }
    EXPECT_EQ(end, layout.elements);
    std::vector<std::int64_t> parameters_in(layout.buckets.size(), 0);
    for (std::size_t i = 0; i < layout.places.size(); ++i) {
      for (std::size_t b = layout.places[i].first_bucket; b < layout.places[i].end_bucket; ++b) {
        ++parameters_in[b];
        EXPECT_LE(layout.buckets[b].last, i);
      }
    }
    for (std::size_t b = 0; b < layout.buckets.size(); ++b) {
      EXPECT_EQ(parameters_in[b], layout.buckets[b].parameters);
    }
    for (const Shard& shard : layout.shards) {
      const std::int64_t begin = layout.places[shard.tensor].begin;
      for (std::int64_t element = shard.begin; element < shard.end; element += kUnit / 4) {
        const Layout::Bucket& bucket = layout.buckets[layout.bucket_at(shard.tensor, begin + element)];
        EXPECT_EQ(bucket.owner, shard.owner);
        EXPECT_LE(bucket.begin, begin + element);
        EXPECT_GT(bucket.end, begin + element);
      }
    }
    std::int64_t range_end = 0;
    for (const Layout::OwnerRange& range : layout.owner_ranges) {
      EXPECT_EQ(range.begin, range_end);
      range_end = range.end;
    }
    EXPECT_EQ(range_end, layout.elements);
  }
}

TEST(Squares, OfShardsAddUpToTheWhole) {
  at::manual_seed(3);
  const std::int64_t unit = ops::kSquareBlock;
  for (const std::int64_t elements : {unit, 2 * unit, 5 * unit + 1, 7 * unit + 12345}) {
    const at::Tensor whole = at::randn({elements});
    double sum = 0.0;
    for (std::int64_t begin = 0; begin < elements; begin += 2 * unit) {
      for (const double square : ops::square_blocks(whole.narrow(0, begin, std::min(2 * unit, elements - begin)))) {
        sum += square;
      }
    }
    EXPECT_EQ(sum, ops::square_sums({whole})[0]) << elements;
  }
}

}  // namespace headroom::train::sharding_test
