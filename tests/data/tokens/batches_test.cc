#include "data/tokens/batches.h"

#include <numeric>

#include "data/tokens/example_order.h"
#include "token_files.h"

namespace headroom::data::batches_test {

class BatchesTest : public FolderTest {
 protected:
  // Returns the tokens 0, 1, 2, ..., so that an id is its position.
  std::shared_ptr<const TokenFile> counting(std::int64_t size) const {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(size));
    std::iota(ids.begin(), ids.end(), 0);
    return write_tokens(at(fmt::format("counting_{}.tokens", size)), ids, 1 << 20);
  }
};

std::int32_t token(const TokenBatch& batch, std::int64_t row, std::int64_t column) {
  return batch.tokens[static_cast<std::size_t>(row * (batch.length + 1) + column)];
}

TEST_F(BatchesTest, EveryRowContinuesTheOneBefore) {
  const auto batches = make_batches(counting(1000), {.batch = 3, .length = 10}, config::Batching::streams, 1);
  EXPECT_EQ(batches->per_epoch(), 33);  // 333 tokens a stream: 332 predictions, 33 chunks of 10
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::vector<std::int32_t> last;
    for (std::int64_t step = 0; step < 33; ++step) {
      EXPECT_EQ(batches->position(), (DataPosition{.epoch = epoch, .step = step}));
      const TokenBatch batch = batches->next();
      EXPECT_EQ(batch.resets_memory, step == 0);
      ASSERT_EQ(batch.tokens.size(), 33U);
      for (std::int64_t row = 0; row < 3; ++row) {
        EXPECT_EQ(token(batch, row, 0), row * 333 + step * 10);
        for (std::int64_t column = 1; column <= 10; ++column) {
          EXPECT_EQ(token(batch, row, column), token(batch, row, column - 1) + 1);
        }
      }
      if (step > 0) {
        for (std::int64_t row = 0; row < 3; ++row) {
          EXPECT_EQ(token(batch, row, 0), last[static_cast<std::size_t>(row)]);
        }
      }
      last = {token(batch, 0, 10), token(batch, 1, 10), token(batch, 2, 10)};
    }
  }
}

TEST_F(BatchesTest, ChunksCoverTheFileInANewOrderEveryEpoch) {
  const auto file = counting(1008);
  const auto batches = make_batches(file, {.batch = 4, .length = 10}, config::Batching::chunks, 5);
  EXPECT_EQ(batches->per_epoch(), 25);  // 100 chunks, 4 a batch
  std::vector<std::vector<std::int32_t>> orders;
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<std::int32_t> begins;
    for (int step = 0; step < 25; ++step) {
      const TokenBatch batch = batches->next();
      EXPECT_TRUE(batch.resets_memory);
      for (std::int64_t row = 0; row < 4; ++row) {
        begins.push_back(token(batch, row, 0));
        EXPECT_EQ(token(batch, row, 10), token(batch, row, 0) + 10);
      }
    }
    std::set<std::int32_t> different(begins.begin(), begins.end());
    EXPECT_EQ(different.size(), 100U);
    EXPECT_EQ(*different.rbegin(), 990);
    orders.push_back(begins);
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_NE(orders[1], orders[2]);
  const auto other = make_batches(file, {.batch = 4, .length = 10}, config::Batching::chunks, 6);
  std::vector<std::int32_t> begins;
  for (int step = 0; step < 25; ++step) {
    const TokenBatch batch = other->next();
    for (std::int64_t row = 0; row < 4; ++row) {
      begins.push_back(token(batch, row, 0));
    }
  }
  EXPECT_NE(begins, orders[0]);
}

TEST(Shuffle, IsAPermutationWithoutRegularity) {
  for (const std::uint64_t n : {1U, 2U, 3U, 4U, 5U, 17U, 255U, 256U, 257U, 5000U}) {
    const Shuffle shuffle(n, 9);
    std::set<std::uint64_t> seen;
    for (std::uint64_t place = 0; place < n; ++place) {
      ASSERT_LT(shuffle(place), n);
      seen.insert(shuffle(place));
    }
    EXPECT_EQ(seen.size(), n);
  }
  // Over many seeds, every position receives every value equally often (chi-squared test, 25 degrees of freedom).
  constexpr std::uint64_t kN = 6, kRounds = 60000;
  std::map<std::pair<std::uint64_t, std::uint64_t>, double> counts;
  for (std::uint64_t seed = 0; seed < kRounds; ++seed) {
    const Shuffle shuffle(kN, seed);
    for (std::uint64_t place = 0; place < kN; ++place) {
      counts[{place, shuffle(place)}] += 1.0;
    }
  }
  double chi_squared = 0.0;
  const double expected = static_cast<double>(kRounds) / kN;
  for (const auto& [cell, count] : counts) {
    chi_squared += (count - expected) * (count - expected) / expected;
  }
  EXPECT_EQ(counts.size(), kN * kN);
  EXPECT_LT(chi_squared, 60.0);  // 99.99% of fair shuffles are below
}

TEST_F(BatchesTest, ASavedPositionContinuesExactly) {
  const auto file = counting(2000);
  Random random(3);
  for (const config::Batching batching : {config::Batching::streams, config::Batching::chunks}) {
    const BatchShape shape{.batch = 5, .length = 7};
    const auto all = make_batches(file, shape, batching, 11);
    std::vector<DataPosition> positions;
    std::vector<TokenBatch> expected;
    for (std::int64_t i = 0; i < 3 * all->per_epoch(); ++i) {
      positions.push_back(all->position());
      expected.push_back(all->next());
    }
    const auto again = make_batches(file, shape, batching, 11);
    for (int round = 0; round < 60; ++round) {
      std::size_t at = random.below(expected.size());
      again->seek(positions[at]);
      EXPECT_EQ(again->position(), positions[at]);
      for (int ahead = 0; ahead < 3 && at < expected.size(); ++ahead, ++at) {
        const TokenBatch batch = again->next();
        ASSERT_EQ(batch.tokens, expected[at].tokens);
        ASSERT_EQ(batch.resets_memory, expected[at].resets_memory);
      }
    }
    EXPECT_HAS(user_error_of([&] { again->seek({.epoch = 0, .step = all->per_epoch()}); }), "batches an epoch");
    EXPECT_HAS(user_error_of([&] { again->seek({.epoch = -1, .step = 0}); }), "epoch -1");
    EXPECT_HAS(user_error_of([&] { again->seek({.epoch = 0, .step = -1}); }), "step -1");
  }
}

TEST_F(BatchesTest, TheErrorForTooShortAFileNamesTheKeys) {
  for (const config::Batching batching : {config::Batching::streams, config::Batching::chunks}) {
    const std::string message =
        user_error_of([&] { make_batches(counting(30), {.batch = 4, .length = 8}, batching, 1); });
    EXPECT_HAS(message, "counting_30.tokens: holds 30 tokens");
    EXPECT_HAS(message, "train.batch_size 4");
    EXPECT_HAS(message, "model.context_length 8");
    EXPECT_NO_THROW(make_batches(counting(36), {.batch = 4, .length = 8}, batching, 1));
    user_error_of([&] { make_batches(counting(1), {.batch = 1, .length = 1}, batching, 1); });
    user_error_of([&] { make_batches(counting(30), {.batch = 1, .length = INT64_MAX}, batching, 1); });
    user_error_of([&] { make_batches(counting(30), {.batch = INT64_MAX, .length = 8}, batching, 1); });
    user_error_of([&] { make_batches(counting(30), {.batch = 0, .length = 8}, batching, 1); });
  }
}

TEST_F(BatchesTest, AnEvaluationPredictsEveryTokenOnce) {
  Random random(8);
  for (int round = 0; round < 200; ++round) {
    const auto size = static_cast<std::int64_t>(1 + random.below(400));
    const EvaluationShape shape{.batch = static_cast<std::int64_t>(1 + random.below(9)),
                                .length = static_cast<std::int64_t>(1 + random.below(20)),
                                .warming = static_cast<std::int64_t>(random.below(4)),
                                .most_predictions = static_cast<std::int64_t>(random.below(2)) * (size - 1)};
    EvaluationPass pass(counting(size), shape);
    const std::int64_t wanted = size - 1;
    std::vector<int> predicted(static_cast<std::size_t>(size));
    EvaluationBatch batch;
    std::int64_t steps = 0, read = 0;
    for (std::vector<std::int32_t> next; pass.next(batch); ++steps) {
      ASSERT_EQ(batch.resets_memory, steps == 0 || shape.warming == 0);
      ASSERT_GE(batch.batch, 1);
      ASSERT_LE(batch.length, shape.length);
      ASSERT_EQ(std::ssize(batch.inputs), batch.batch * batch.length);
      ASSERT_EQ(batch.inputs.size(), batch.targets.size());
      std::int64_t valid = 0;
      std::vector<std::int32_t> after;
      for (std::int64_t row = 0; row < batch.batch; ++row) {
        const std::int32_t first = batch.inputs[static_cast<std::size_t>(row * batch.length)];
        ASSERT_EQ(first % shape.length, 0) << "the same chunks for any number of streams";
        ASSERT_TRUE(steps == 0 || first == next[static_cast<std::size_t>(row)]) << "a row goes on where it was";
        after.push_back(first + static_cast<std::int32_t>(batch.length));
        for (std::int64_t column = 0; column < batch.length; ++column) {
          const auto at = static_cast<std::size_t>(row * batch.length + column);
          ASSERT_GE(batch.inputs[at], 0) << "an input must be a token";
          if (batch.targets[at] >= 0) {
            ASSERT_EQ(batch.targets[at], batch.inputs[at] + 1);
            ASSERT_TRUE(row == 0 || steps >= shape.warming) << "nothing counts before its stream has warmed up";
            predicted[static_cast<std::size_t>(batch.targets[at])] += 1;
            ++valid;
          }
        }
      }
      ASSERT_EQ(batch.valid, valid);
      ASSERT_GT(valid, 0);
      read += batch.batch;
      next = std::move(after);
    }
    ASSERT_EQ(steps, pass.batches());
    for (std::int64_t token = 0; token < size; ++token) {
      ASSERT_EQ(predicted[static_cast<std::size_t>(token)], token >= 1 && token <= wanted ? 1 : 0) << token;
    }
    const std::int64_t chunks = (wanted + shape.length - 1) / shape.length;
    ASSERT_LE(4 * (read - chunks), 5 * chunks) << "warming up is a small part of the work";
  }
}

// Returns the targets that a pass counts. Checks that each is predicted once, after at least `warming` chunks of
// memory.
std::vector<std::int32_t> counted_targets(const std::shared_ptr<const TokenFile>& file, const EvaluationShape& shape) {
  EvaluationPass pass(file, shape);
  std::vector<std::int32_t> counted;
  std::vector<std::int64_t> begins;  // of each row: the first chunk since the memory was reset
  std::int64_t batches = 0, chunks = 0;
  for (EvaluationBatch batch; pass.next(batch); ++batches, chunks += batch.batch) {
    begins = batch.resets_memory ? batch.chunks : begins;
    for (std::size_t row = 0; row < batch.chunks.size(); ++row) {
      for (std::int64_t column = 0; column < batch.length; ++column) {
        const std::size_t at = row * static_cast<std::size_t>(batch.length) + static_cast<std::size_t>(column);
        if (batch.targets[at] < 0) {
          EXPECT_GE(column, batch.counted[row]);
          continue;
        }
        EXPECT_EQ(batch.targets[at], batch.inputs[at] + 1);
        EXPECT_EQ(batch.inputs[at] - column, batch.chunks[row] * shape.length);
        EXPECT_TRUE(begins[row] == 0 || batch.chunks[row] - begins[row] >= shape.warming);
        counted.push_back(batch.targets[at]);
      }
    }
  }
  EXPECT_EQ(batches, pass.batches());
  EXPECT_EQ(chunks, pass.chunks());
  std::ranges::sort(counted);
  EXPECT_EQ(std::ranges::adjacent_find(counted), counted.end()) << "each is predicted once";
  return counted;
}

TEST_F(BatchesTest, ALimitedEvaluationIsSpreadEvenlyOverTheFile) {
  Random random(9);
  for (int round = 0; round < 100; ++round) {
    const auto size = static_cast<std::int64_t>(3 + random.below(4000));
    const auto most = static_cast<std::int64_t>(1 + random.below(static_cast<std::uint64_t>(size - 2)));
    EvaluationShape shape{.batch = 1,
                          .length = static_cast<std::int64_t>(1 + random.below(20)),
                          .warming = static_cast<std::int64_t>(random.below(4)),
                          .most_predictions = most};
    const auto file = counting(size);
    const std::vector<std::int32_t> counted = counted_targets(file, shape);
    const std::int64_t chunks = (size - 2 + shape.length) / shape.length,
                       part = (most + shape.length - 1) / shape.length;
    ASSERT_LE(std::ssize(counted), most);
    ASSERT_GE(std::ssize(counted), most - (size - 1) % shape.length) << "the file's last chunk may be shorter";
    // The gap is largest if the pieces have equal lengths and distances.
    const std::int64_t pieces =
        std::min<std::int64_t>(part, shape.warming > 0 ? std::clamp<std::int64_t>(part / shape.warming, 8, 64) : 64);
    std::int32_t before = 0, largest = 0;
    for (const std::int32_t target : counted) {
      largest = std::max(largest, target - before - 1);
      before = target;
    }
    largest = std::max(largest, static_cast<std::int32_t>(size - 1) - before);
    ASSERT_LE(largest, ((chunks - part) / pieces + 2) * shape.length) << size << " " << most << " " << shape.length;
    for (const std::int64_t batch : {2, 7, 1000}) {
      shape.batch = batch;
      ASSERT_EQ(counted_targets(file, shape), counted) << "for any number of streams";
    }
  }
}

}  // namespace headroom::data::batches_test
