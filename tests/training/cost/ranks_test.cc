#include "training/cost/ranks.h"

#include <gtest/gtest.h>

#include <numeric>

#include "small_model.h"
#include "training/cost/cost.h"

namespace headroom::cost::ranks_test {

using namespace parallel;

std::vector<ShardedTensor> of_sizes(const std::vector<std::int64_t>& sizes, bool elementwise = true) {
  std::vector<ShardedTensor> tensors;
  for (const std::int64_t size : sizes) {
    tensors.push_back({.elements = size, .elementwise = elementwise});
  }
  return tensors;
}

TEST(Ranks, TheLargestTensorGoesToTheLeastLoaded) {
  const auto owners = [](const std::vector<std::int64_t>& sizes, int ranks) {
    std::vector<int> all;
    for (const Shard& shard : assign_shards(of_sizes(sizes), ranks)) {
      EXPECT_EQ(shard.tensor, all.size());
      EXPECT_EQ(shard.count(), sizes[shard.tensor]);
      all.push_back(shard.owner);
    }
    return all;
  };
  EXPECT_EQ(owners({3, 10, 4, 5, 3}, 2), (std::vector<int>{1, 0, 1, 1, 0}));
  EXPECT_EQ(owners({7, 7, 7}, 2), (std::vector<int>{0, 1, 0}));
  EXPECT_EQ(owners({1, 2}, 1), (std::vector<int>{0, 0}));
  EXPECT_EQ(owners({0, 5}, 2), (std::vector<int>{1, 0}));
}

TEST(Ranks, LargeTensorsAreCutAtBlocksOfTheNorm) {
  const std::vector<std::int64_t> sizes = {10 * kShardUnit + 7, 100, 3 * kShardUnit};
  std::vector<std::int64_t> end(sizes.size(), 0);
  std::size_t shards = 0;
  for (const Shard& shard : assign_shards(of_sizes(sizes), 4)) {
    EXPECT_EQ(shard.begin, end[shard.tensor]);
    EXPECT_EQ(shard.begin % kShardUnit, 0);
    EXPECT_LE(shard.count(), kShardUnit);
    end[shard.tensor] = shard.end;
    ++shards;
  }
  EXPECT_EQ(end, sizes);
  EXPECT_EQ(shards, 11 + 1 + 3);
  EXPECT_EQ(assign_shards(of_sizes(sizes, false), 4).size(),
            3);  // a tensor whose update is not elementwise stays whole
  EXPECT_EQ(assign_shards(of_sizes(sizes), 1).size(), 3);
}

TEST(Ranks, MomentsAreBalanced) {
  for (const char* name : {"switchhead/wt103_47m", "switchhead/c4_262m", "switchhead/wt103_262m_dense_h16"}) {
    config::Config config = recipe(name);
    std::vector<std::int64_t> sizes, load;
    for (const ParameterTensor& tensor : parameter_tensors(config.model)) {
      sizes.push_back(tensor.elements);
    }
    const auto all = static_cast<double>(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}));
    for (const int n : {1, 2, 3, 4, 5, 6, 7, 12, 16, 24, 32, 48, 64, 8}) {
      load.assign(static_cast<std::size_t>(n), 0);
      for (const Shard& shard : assign_shards(of_sizes(sizes), n)) {
        load[static_cast<std::size_t>(shard.owner)] += shard.count();
      }
      for (const std::int64_t elements : load) {
        EXPECT_NEAR(static_cast<double>(elements * n) / all, 1.0, 0.02) << name << " " << n;
      }
    }
    config.train.batch_size = 64;
    const std::vector<RankCost> costs = ranks_cost(config, 8).all;
    for (std::size_t rank = 0; rank < costs.size(); ++rank) {
      EXPECT_EQ(costs[rank].moments, 8 * load[rank]) << name << " " << rank;  // two floats an element
    }
  }
}

// Muon's matrices are not cut. The tensors that AdamW updates are, especially the embedding and the output layer.
TEST(Ranks, MuonCutsTensorsThatAreNotLayerMatrices) {
  config::Config config = recipe("switchhead/c4_262m");
  config.train.optimizer = config::Optimizer::muon;
  const std::int64_t moments =
      2 * count_parameters(config.model) - count_hidden_matrices(config.model);  // the matrices have no second moment
  for (const std::int64_t n : {1, 8, 64}) {
    config.train.batch_size = 8 * n;
    const RanksCost cost = ranks_cost(config, n);
    EXPECT_LT(cost.imbalance(), 1.06) << n;  // would be 2 with an uncut embedding of 8.2M elements on 64 ranks
    std::int64_t sum = 0;
    for (const RankCost& one : cost.all) {
      sum += one.moments;
    }
    EXPECT_EQ(sum, 4 * moments) << n;
  }
}

TEST(Ranks, SentAndReceivedBytesMatch) {
  config::Config config = recipe("switchhead/wt103_47m");
  for (const auto& [accumulators, n] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{8, 3}, {8, 8}, {2, 4}, {1, 1}}) {
    config.train.accumulate = accumulators;
    const RanksCost cost = ranks_cost(config, n);
    EXPECT_EQ(cost.accumulators, std::max(accumulators, n));
    std::int64_t balance = 0, moved = 0, computed = 0, elements = 0;
    for (const RankCost& one : cost.all) {
      balance += one.gradients_sent - one.gradients_received;
      moved += one.parameters_sent - one.parameters_received;
      computed += one.accumulators;
      elements += one.elements;
      EXPECT_EQ(one.running_sums > 0, accumulators > n);
    }
    EXPECT_EQ(balance, 0);
    EXPECT_EQ(moved, 0);
    EXPECT_EQ(computed, cost.accumulators);
    EXPECT_EQ(elements, count_parameters(config.model));
  }
}

TEST(Ranks, AnAccumulatorIsSentOnce) {
  config::Config config = recipe("switchhead/wt103_47m");
  config.train.accumulate = 16;
  // One accumulator per rank causes the traffic of an all-reduce. With 16 accumulators, gradients take 16 / 2 times as
  // much.
  EXPECT_NEAR(ranks_cost(config, 2).of_all_reduce(), (8.0 + 1.0) / 2.0, 0.001);
  config.train.gradient_accumulators = 2;
  EXPECT_NEAR(ranks_cost(config, 2).of_all_reduce(), 1.0, 0.001);
  EXPECT_NEAR(ranks_cost(config, 2).hiding_bandwidth(2e14) / ranks_cost(config, 2).hiding_bandwidth(1e14), 2.0, 1e-9);
}

TEST(Ranks, OneRankNeedsTheMemoryOfAStep) {
  config::Config config = recipe("switchhead/wt103_47m");
  config.train.accumulate = 4;
  const RanksCost cost = ranks_cost(config, 1);
  EXPECT_EQ(cost.largest().total, step_memory(config).total + kProgramBytes + 2 * 4 * 8000 * 412);
  EXPECT_EQ(cost.largest().gradients_sent, 0);
  EXPECT_EQ(cost.largest().staging, 0);
}

TEST(Ranks, StagingIsBounded) {
  config::Config config = recipe("switchhead/c4_262m");
  for (const std::int64_t n : {2, 8, 64, 1024}) {
    config.train.batch_size = n;
    for (const RankCost& one : ranks_cost(config, n).all) {
      EXPECT_LE(one.staging, 64 << 20) << n;
      EXPECT_EQ(one.staging, 8 * (n - 1) * std::min(bucket_elements(n), (one.parameters_sent / (n - 1)) / 4)) << n;
    }
  }
}

// Accumulators follow training (docs/processes.md): two accumulators of six micro-batches do not suffice for four
// ranks, and four do not divide six.
TEST(Ranks, AccumulatorsAreRaisedToADivisor) {
  config::Config config = recipe("switchhead/wt103_47m");
  tiny::set(config, "train.batch_size=6 train.accumulate=6 train.gradient_accumulators=2");
  const RanksCost cost = ranks_cost(config, 4);
  EXPECT_EQ(cost.accumulators, 6);
  EXPECT_EQ(cost.rounds, 2);
  EXPECT_GT(cost.all.front().running_sums, 0);
}

TEST(Ranks, ShardedRanksStoreSixteenBytesOfTheirElements) {
  config::Config config = recipe("switchhead/wt103_47m");
  const std::int64_t all = count_parameters(config.model);
  for (const std::int64_t n : {1, 4}) {
    config.train.accumulate = 8;
    const RanksCost cost = sharded_cost(config, n);
    const RankCost& one = cost.largest();
    EXPECT_NEAR(static_cast<double>(one.parameters + one.gradients + one.moments), 16.0 * static_cast<double>(all / n),
                16.0);
    EXPECT_EQ(one.gradients_sent, 8 / n * (n - 1) * 4 * one.elements);
    EXPECT_GT(one.parameters_received, n == 1 ? -1 : one.gradients_sent);
    EXPECT_LT(one.parameters_received, 2 * one.gradients_sent + 1);
    EXPECT_EQ(one.activations, ranks_cost(config, 1).largest().activations);
  }
}

TEST(Ranks, RefusesUnevenBatches) {
  config::Config config = recipe("switchhead/wt103_47m");  // 64 sequences
  EXPECT_THROW(ranks_cost(config, 5), UserError);
  EXPECT_THROW(ranks_cost(config, std::int64_t{1} << 40), UserError);
}

}  // namespace headroom::cost::ranks_test
