#include "training/cost/processes.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "headroom/core/error.h"
#include "recipes.h"
#include "training/cost/cost.h"
#include "training/cost/memory.h"

namespace headroom::cost {
namespace processes_test {

std::vector<SharedTensor> of_sizes(const std::vector<std::int64_t>& sizes, bool by_number = true) {
  std::vector<SharedTensor> tensors;
  for (const std::int64_t size : sizes) {
    tensors.push_back({.numbers = size, .by_number = by_number});
  }
  return tensors;
}

TEST(Processes, TheLargestTensorGoesToTheEmptiestFirst) {
  const auto owners = [](const std::vector<std::int64_t>& sizes, int processes) {
    std::vector<int> all;
    for (const Piece& piece : share_out(of_sizes(sizes), processes)) {
      EXPECT_EQ(piece.tensor, all.size());
      EXPECT_EQ(piece.count(), sizes[piece.tensor]);
      all.push_back(piece.owner);
    }
    return all;
  };
  EXPECT_EQ(owners({3, 10, 4, 5, 3}, 2), (std::vector<int>{1, 0, 1, 1, 0}));
  EXPECT_EQ(owners({7, 7, 7}, 2), (std::vector<int>{0, 1, 0}));
  EXPECT_EQ(owners({1, 2}, 1), (std::vector<int>{0, 0}));
  EXPECT_EQ(owners({0, 5}, 2), (std::vector<int>{1, 0}));
}

TEST(Processes, LargeTensorsAreCutAtBlocksOfTheNorm) {
  const std::vector<std::int64_t> sizes = {10 * kPieceUnit + 7, 100, 3 * kPieceUnit};
  std::vector<std::int64_t> end(sizes.size(), 0);
  std::size_t pieces = 0;
  for (const Piece& piece : share_out(of_sizes(sizes), 4)) {
    EXPECT_EQ(piece.begin, end[piece.tensor]);
    EXPECT_EQ(piece.begin % kPieceUnit, 0);
    EXPECT_LE(piece.count(), kPieceUnit);
    end[piece.tensor] = piece.end;
    ++pieces;
  }
  EXPECT_EQ(end, sizes);
  EXPECT_EQ(pieces, 11 + 1 + 3);
  EXPECT_EQ(share_out(of_sizes(sizes, false), 4).size(), 3);  // matrices that are moved whole
  EXPECT_EQ(share_out(of_sizes(sizes), 1).size(), 3);
}

TEST(Processes, MomentsOfEachAreAlmostEqual) {
  for (const char* name : {"switchhead/wt103_47m", "switchhead/c4_262m", "switchhead/wt103_262m_dense_h16"}) {
    config::Config config = recipe(name);
    const double all = 8.0 * static_cast<double>(count_parameters(config.model));
    for (const std::int64_t n : {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64}) {
      config.train.batch_size = 8 * n;
      for (const ProcessCost& one : processes_cost(config, n).all) {
        EXPECT_NEAR(static_cast<double>(one.moments) * static_cast<double>(n) / all, 1.0, 0.02) << name << " " << n;
      }
    }
  }
}

// Muon's matrices stay whole; what AdamW moves for it is cut, above all the embedding and the output layer.
TEST(Processes, MuonSharesEvenlyWhatIsNoMatrixOfALayer) {
  config::Config config = recipe("switchhead/c4_262m");
  config.train.optimizer = config::Optimizer::muon;
  const std::int64_t moments =
      2 * count_parameters(config.model) - count_hidden_matrices(config.model);  // no squares of the matrices
  for (const std::int64_t n : {1, 8, 64}) {
    config.train.batch_size = 8 * n;
    const ProcessesCost cost = processes_cost(config, n);
    EXPECT_LT(cost.imbalance(), 1.06) << n;  // 2 with a whole embedding of 8.2M numbers, at 64 processes
    std::int64_t sum = 0;
    for (const ProcessCost& one : cost.all) {
      sum += one.moments;
    }
    EXPECT_EQ(sum, 4 * moments) << n;
  }
}

TEST(Processes, WhatOneSendsOthersReceive) {
  config::Config config = recipe("switchhead/wt103_47m");
  for (const auto& [sums, n] : std::vector<std::pair<std::int64_t, std::int64_t>>{{8, 3}, {8, 8}, {2, 4}, {1, 1}}) {
    config.train.accumulate = sums;
    const ProcessesCost cost = processes_cost(config, n);
    EXPECT_EQ(cost.sums, std::max(sums, n));
    std::int64_t balance = 0, moved = 0, computed = 0, numbers = 0;
    for (const ProcessCost& one : cost.all) {
      balance += one.gradients_sent - one.gradients_received;
      moved += one.parameters_sent - one.parameters_received;
      computed += one.sums;
      numbers += one.numbers;
      EXPECT_EQ(one.running_sums > 0, sums > n);
    }
    EXPECT_EQ(balance, 0);
    EXPECT_EQ(moved, 0);
    EXPECT_EQ(computed, cost.sums);
    EXPECT_EQ(numbers, count_parameters(config.model));
  }
}

TEST(Processes, SumsOfSeveralMicroBatchesAreSentOnce) {
  config::Config config = recipe("switchhead/wt103_47m");
  config.train.accumulate = 16;
  // With as many sums as processes it is what an all-reduce sends; with 16 sums gradients take 16 / 2 times as much.
  EXPECT_NEAR(processes_cost(config, 2).of_all_reduce(), (8.0 + 1.0) / 2.0, 0.001);
  config.train.gradient_accumulators = 2;
  EXPECT_NEAR(processes_cost(config, 2).of_all_reduce(), 1.0, 0.001);
  EXPECT_NEAR(processes_cost(config, 2).hiding_bandwidth(2e14) / processes_cost(config, 2).hiding_bandwidth(1e14), 2.0,
              1e-9);
}

TEST(Processes, OneNeedsWhatAStepNeeds) {
  config::Config config = recipe("switchhead/wt103_47m");
  config.train.accumulate = 4;
  const ProcessesCost cost = processes_cost(config, 1);
  EXPECT_EQ(cost.largest().total, step_memory(config).total + kProgramBytes + 2 * 4 * 8000 * 412);
  EXPECT_EQ(cost.largest().gradients_sent, 0);
  EXPECT_EQ(cost.largest().staging, 0);
}

TEST(Processes, StagingIsBounded) {
  config::Config config = recipe("switchhead/c4_262m");
  for (const std::int64_t n : {2, 8, 64, 1024}) {
    config.train.batch_size = n;
    for (const ProcessCost& one : processes_cost(config, n).all) {
      EXPECT_LE(one.staging, 64 << 20) << n;
      EXPECT_EQ(one.staging, 8 * (n - 1) * std::min(bucket_numbers(n), (one.parameters_sent / (n - 1)) / 4)) << n;
    }
  }
}

TEST(Processes, WhatCannotBeSharedIsRefused) {
  config::Config config = recipe("switchhead/wt103_47m");  // 64 sequences
  EXPECT_THROW(processes_cost(config, 0), UserError);
  EXPECT_THROW(processes_cost(config, 5), UserError);
  EXPECT_THROW(processes_cost(config, std::int64_t{1} << 40), UserError);
}

}  // namespace processes_test
}  // namespace headroom::cost
