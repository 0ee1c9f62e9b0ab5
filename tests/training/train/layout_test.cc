#include "training/train/ranks/layout.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "headroom/ops/optimizers.h"

namespace headroom::train {
namespace {

nn::Parameters parameters_of(const std::vector<std::int64_t>& sizes) {
  nn::Parameters parameters;
  for (const std::int64_t n : sizes) {
    parameters.add(std::to_string(parameters.all().size()), at::zeros({n}));
  }
  return parameters;
}

TEST(Shares, are_even_and_cover_everything) {
  const nn::Parameters parameters = parameters_of({1000, 40, 900, 300, 300, 7, 512, 64, 64});
  const Shares shares(parameters, 3, config::Optimizer::adamw);
  std::vector<std::int64_t> numbers(3, 0);
  std::size_t owned = 0;
  for (int rank = 0; rank < 3; ++rank) {
    for (const Piece& piece : Share(shares, rank).pieces(parameters)) {
      numbers[static_cast<std::size_t>(rank)] += piece.count();
      ++owned;
    }
    EXPECT_EQ(shares.numbers(rank), numbers[static_cast<std::size_t>(rank)]);
    EXPECT_NEAR(static_cast<double>(numbers[static_cast<std::size_t>(rank)]), parameters.count() / 3.0, 80.0);
  }
  EXPECT_EQ(owned, shares.pieces().size());
  EXPECT_EQ(Share().pieces(parameters).size(), parameters.all().size());
}

TEST(Shares, a_piece_is_its_row_of_numbers) {
  const at::Tensor whole = at::arange(12).view({3, 4});
  EXPECT_TRUE(piece_of(whole, {.begin = 0, .end = 12}).is_same(whole));
  const at::Tensor piece = piece_of(whole, {.begin = 4, .end = 7});
  EXPECT_TRUE(at::equal(piece, at::arange(4, 7)));
  piece.fill_(0);
  EXPECT_EQ(whole[1][2].item<std::int64_t>(), 0);
}

// Every number of every parameter lies in one bucket, of its piece's owner.
TEST(Layout, puts_every_piece_into_buckets_of_its_owner) {
  constexpr std::int64_t kUnit = cost::kPieceUnit, kMost = cost::bucket_numbers(3);
  const nn::Parameters parameters = parameters_of({3 * kMost + 5, 17, 40 * kUnit + 1, 200, kUnit, 0, 90 * kUnit, 3});
  for (const config::Optimizer optimizer : {config::Optimizer::adamw, config::Optimizer::muon}) {
    const Shares shares(parameters, 3, optimizer);
    const Layout layout(shares.pieces(), 3);
    std::int64_t end = 0;
    for (const Layout::Bucket& bucket : layout.buckets) {
      EXPECT_EQ(bucket.begin, end);
      EXPECT_GT(bucket.end, bucket.begin);
      EXPECT_LE(bucket.end - bucket.begin, kMost);
      end = bucket.end;
    }
    EXPECT_EQ(end, layout.numbers);
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
    for (const Piece& piece : layout.pieces) {
      const std::int64_t begin = layout.places[piece.tensor].begin;
      for (std::int64_t number = piece.begin; number < piece.end; number += kUnit / 4) {
        const Layout::Bucket& bucket = layout.buckets[layout.bucket_at(piece.tensor, begin + number)];
        EXPECT_EQ(bucket.owner, piece.owner);
        EXPECT_LE(bucket.begin, begin + number);
        EXPECT_GT(bucket.end, begin + number);
      }
    }
    std::int64_t runs = 0;
    for (const Layout::Run& run : layout.runs) {
      EXPECT_EQ(run.begin, runs);
      runs = run.end;
    }
    EXPECT_EQ(runs, layout.numbers);
  }
}

TEST(Squares, of_pieces_are_those_of_the_whole) {
  at::manual_seed(3);
  const std::int64_t unit = ops::kSquareBlock;
  for (const std::int64_t numbers : {unit, 2 * unit, 5 * unit + 1, 7 * unit + 12345}) {
    const at::Tensor whole = at::randn({numbers});
    double sum = 0.0;
    for (std::int64_t begin = 0; begin < numbers; begin += 2 * unit) {
      for (const double square : ops::square_blocks(whole.narrow(0, begin, std::min(2 * unit, numbers - begin)))) {
        sum += square;
      }
    }
    EXPECT_EQ(sum, ops::square_sums({whole})[0]) << numbers;
  }
}

}  // namespace
}  // namespace headroom::train
