// Cached predictions are the bits that were computed.
#include "training/train/step/teacher.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "tiny/folder.h"

namespace headroom::train {
namespace {

class PredictionCacheTest : public ::testing::Test {
 protected:
  const tiny::Folder temporary_;
  const std::filesystem::path folder_ = temporary_ / "predictions";
  const at::Tensor tokens_ = at::arange(10, at::kLong).view({2, 5});
  const at::Tensor logits_ = at::randn({2, 5, 20}, at::make_generator<at::CPUGeneratorImpl>(1), at::kFloat);
  int made_ = 0;
  const std::function<TopPredictions()> make_ = [this] {
    ++made_;
    return top_predictions(logits_, 4, 1.0);
  };
};

TEST_F(PredictionCacheTest, ReadsWhatItComputedOnce) {
  const TopPredictions expected = top_predictions(logits_, 4, 1.0);
  const auto expect_equal = [&](const TopPredictions& found) {
    EXPECT_TRUE(at::equal(found.index, expected.index));
    EXPECT_TRUE(at::equal(found.log_probability, expected.log_probability));
  };
  PredictionCache cache(folder_, "settings", 4);
  expect_equal(cache.get(tokens_, make_));
  expect_equal(cache.get(tokens_, make_));
  expect_equal(PredictionCache(folder_, "settings", 4).get(tokens_, make_));
  EXPECT_EQ(made_, 1);
  cache.get(tokens_ + 1, make_);
  cache.get(tokens_.view({5, 2}), [&] { return top_predictions(logits_.view({5, 2, 20}), 4, 1.0); });
  PredictionCache(folder_, "others", 4).get(tokens_, make_);
  EXPECT_EQ(made_, 3);
  const auto for_each_file = [&](const std::function<void(const std::filesystem::path&)>& change) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(cache.folder())) {
      if (entry.is_regular_file()) {
        change(entry.path());
      }
    }
  };
  // Files that were cut off or changed are computed again.
  for_each_file([](const std::filesystem::path& file) { std::filesystem::resize_file(file, 7); });
  expect_equal(cache.get(tokens_, make_));
  expect_equal(cache.get(tokens_, make_));
  EXPECT_EQ(made_, 4);
  for_each_file([](const std::filesystem::path& file) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(3);
    stream.put('\x7f');
  });
  expect_equal(cache.get(tokens_, make_));
  EXPECT_EQ(made_, 5);
  // A file in the place of the folder: nothing is stored.
  const std::filesystem::path blocked = folder_ / "blocked";
  std::ofstream(blocked) << "x";
  expect_equal(PredictionCache(blocked, "settings", 4).get(tokens_, make_));
  EXPECT_EQ(made_, 6);
}

// Without room, predictions are computed; those that are stored are still read.
TEST_F(PredictionCacheTest, StoresOnlyWhatTheFileSystemHasRoomFor) {
  PredictionCache cache(folder_, "settings", 4);
  PredictionCache::Room room = cache.reserve(10);
  EXPECT_EQ(room.needed, 10.0 * prediction_bytes(4));
  EXPECT_EQ(room.stored, 0.0);
  EXPECT_TRUE(room.is_enough());
  cache.get(tokens_, make_);
  room = cache.reserve(10);  // all are there
  EXPECT_EQ(room.needed, 0.0);
  EXPECT_GE(room.stored, 10.0 * prediction_bytes(4));
  EXPECT_FALSE(cache.reserve(1e18).is_enough());
  constexpr double kAll = 1e18;
  PredictionCache full(folder_, "settings", 4, kAll);  // the file system fills up while the run goes on
  for (PredictionCache* const unable : {&cache, &full}) {
    made_ = 0;
    unable->get(tokens_, make_);
    EXPECT_EQ(made_, 0);
    unable->get(tokens_ + 1, make_);
    unable->get(tokens_ + 1, make_);
    EXPECT_EQ(made_, 2);
  }
}

TEST(TopPredictions, TheOthersAreOneClass) {
  const at::Tensor logits = at::tensor({0.0F, 3.0F, 1.0F, 2.0F}).view({1, 1, 4});
  const TopPredictions top = top_predictions(logits, 2, 0.5);
  const at::Tensor p = (logits / 0.5).softmax(-1).flatten();
  EXPECT_EQ(top.index.flatten()[0].item<int>(), 1);
  EXPECT_EQ(top.index.flatten()[1].item<int>(), 3);
  const at::Tensor expected = at::stack({p[1], p[3], p[0] + p[2]}).log();
  EXPECT_LT((top.log_probability.flatten() - expected).abs().max().item<double>(), 1e-6);
}

}  // namespace
}  // namespace headroom::train
