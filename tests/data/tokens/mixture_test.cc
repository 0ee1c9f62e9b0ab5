#include <numeric>

#include "data/tokens/batches.h"
#include "token_files.h"

namespace headroom::data::mixture_test {

using config::Batching;

constexpr std::int32_t kApart = 100000;  // ids of file n start at n * kApart

class MixtureTest : public FolderTest {
 protected:
  // Writes files of these sizes. Each id encodes its file and its position in the file.
  Mixture mixture(const std::vector<std::int64_t>& sizes, std::vector<double> weights) const {
    Mixture made{.files = {}, .weights = std::move(weights)};
    for (const std::int64_t size : sizes) {
      std::vector<std::int32_t> ids(static_cast<std::size_t>(size));
      std::iota(ids.begin(), ids.end(), kApart * static_cast<std::int32_t>(made.files.size()));
      made.files.push_back(write_tokens(at(fmt::format("{}.tokens", made.files.size())), ids, 1 << 20));
    }
    return made;
  }
};

std::int32_t token(const TokenBatch& batch, std::int64_t row, std::int64_t column) {
  return batch.tokens[static_cast<std::size_t>(row * (batch.length + 1) + column)];
}

// Expects that each row is a contiguous part of the file that the batch names.
void expect_whole_rows(const TokenBatch& batch) {
  ASSERT_EQ(std::ssize(batch.corpora), batch.batch);
  for (std::int64_t row = 0; row < batch.batch; ++row) {
    EXPECT_EQ(token(batch, row, 0) / kApart, batch.corpora[static_cast<std::size_t>(row)]);
    for (std::int64_t column = 1; column <= batch.length; ++column) {
      EXPECT_EQ(token(batch, row, column), token(batch, row, column - 1) + 1);
    }
  }
}

TEST_F(MixtureTest, SharesAreApproximatedBest) {
  using Shares = std::vector<std::int64_t>;
  EXPECT_EQ(shares_of({1, 1, 1}, 10), (Shares{4, 3, 3}));
  EXPECT_EQ(shares_of({0.7, 0.2, 0.1}, 10), (Shares{7, 2, 1}));
  EXPECT_EQ(shares_of({70, 20, 10}, 16), (Shares{11, 3, 2}));
  EXPECT_EQ(shares_of({1000, 1}, 4), (Shares{4, 0}));
}

// Each row must continue the same row of the previous batch, unless its stream restarts.
TEST_F(MixtureTest, AStreamStaysWithItsRow) {
  const auto batches = mix_batches(mixture({400, 90}, {3, 1}), {.batch = 4, .length = 10}, Batching::streams, 1);
  TokenBatch before;
  std::map<std::int64_t, int> restarts;
  for (int step = 0; step < 40; ++step) {
    const TokenBatch batch = batches->next();
    expect_whole_rows(batch);
    EXPECT_EQ(batch.corpora, (std::vector<std::int32_t>{0, 0, 0, 1}));
    EXPECT_EQ(batch.resets_memory, step == 0);
    for (std::int64_t row = 0; step > 0 && row < 4; ++row) {
      if (token(batch, row, 0) != token(before, row, 10)) {
        EXPECT_EQ(token(batch, row, 0), row < 3 ? row * 133 : kApart);
        ++restarts[row];
      }
    }
    before = batch;
  }
  // The first file has three streams of 13 chunks, the second one stream of 8 chunks; each restarts at its end.
  EXPECT_EQ(restarts, (std::map<std::int64_t, int>{{0, 3}, {1, 3}, {2, 3}, {3, 4}}));
}

TEST_F(MixtureTest, ChunksAreDealtByWeightAndAllOfThemComeBeforeAnyAgain) {
  const Mixture files = mixture({1001, 201, 51}, {0.6, 0.3, 0.1});
  const auto batches = mix_batches(files, {.batch = 8, .length = 10}, Batching::chunks, 5);
  std::map<std::int32_t, std::vector<std::int32_t>> begins;
  constexpr int kSteps = 8192;  // 8 * kSteps rows are one block of the mixture
  for (int step = 0; step < kSteps; ++step) {
    const TokenBatch batch = batches->next();
    EXPECT_TRUE(batch.resets_memory);
    if (step < 50) {
      expect_whole_rows(batch);
    }
    for (std::int64_t row = 0; row < 8; ++row) {
      begins[batch.corpora[static_cast<std::size_t>(row)]].push_back(token(batch, row, 0));
    }
    if (step == 99) {  // after 800 rows, within four standard deviations
      EXPECT_NEAR(static_cast<double>(begins[0].size()), 480, 56);
      EXPECT_NEAR(static_cast<double>(begins[1].size()), 240, 52);
      EXPECT_NEAR(static_cast<double>(begins[2].size()), 80, 34);
    }
  }
  const std::vector<std::int64_t> shares = shares_of(files.weights, kSteps * 8);
  const std::size_t chunks[] = {100, 20, 5};
  for (std::int32_t corpus = 0; corpus < 3; ++corpus) {
    const std::vector<std::int32_t>& all = begins[corpus];
    EXPECT_EQ(std::ssize(all), shares[static_cast<std::size_t>(corpus)]);
    // Over the whole block, the file's chunks are used equally often, except in the last, incomplete pass.
    std::map<std::int32_t, std::int64_t> times;
    for (const std::int32_t begin : all) {
      ++times[begin];
    }
    EXPECT_EQ(times.size(), chunks[corpus]);
    const auto [least, most] = std::minmax_element(times.begin(), times.end(),
                                                   [](const auto& a, const auto& b) { return a.second < b.second; });
    EXPECT_LE(most->second - least->second, 1);
  }
}

TEST_F(MixtureTest, AnySavedPositionContinuesExactly) {
  const Mixture files = mixture({1001, 201}, {2, 1});
  for (const Batching batching : {Batching::streams, Batching::chunks}) {
    const auto whole = mix_batches(files, {.batch = 6, .length = 10}, batching, 5);
    std::vector<TokenBatch> expected;
    std::vector<DataPosition> positions;
    for (int step = 0; step < 60; ++step) {
      positions.push_back(whole->position());
      expected.push_back(whole->next());
    }
    for (const std::size_t from : {0U, 1U, 33U, 59U}) {
      const auto rest = mix_batches(files, {.batch = 6, .length = 10}, batching, 5);
      rest->seek(positions[from]);
      for (std::size_t step = from; step < 60; ++step) {
        const TokenBatch batch = rest->next();
        EXPECT_EQ(batch.tokens, expected[step].tokens);
        EXPECT_EQ(batch.corpora, expected[step].corpora);
      }
    }
    EXPECT_HAS(user_error_of([&] { whole->seek({.epoch = 1, .step = 0}); }), "no epoch 1");
  }
  const auto other = mix_batches(files, {.batch = 6, .length = 10}, Batching::chunks, 6);
  const auto same = mix_batches(files, {.batch = 6, .length = 10}, Batching::chunks, 5);
  EXPECT_NE(other->next().tokens, same->next().tokens);
}

TEST_F(MixtureTest, IncompatibleCorporaAreRefusedByName) {
  const BatchShape shape{.batch = 4, .length = 10};
  const std::string none = user_error_of([&] {
    mix_batches(mixture({400, 400}, {50, 1}), shape, Batching::streams, 1);
  });
  EXPECT_HAS(none, "data.mixture: weight 1 gives ");
  EXPECT_HAS(none, "1.tokens none of the 4 rows of a batch: try a larger train.batch_size");
  EXPECT_HAS(user_error_of([&] {
               mix_batches(mixture({400, 20}, {1, 1}), shape, Batching::streams, 1);
             }),
             "1.tokens: holds 20 tokens, too few for 2 rows of model.context_length 10");
  EXPECT_HAS(user_error_of([&] {
               mix_batches(mixture({400, 10}, {1, 1}), shape, Batching::chunks, 1);
             }),
             "1.tokens: holds 10 tokens");
}

}  // namespace headroom::data::mixture_test
