#include "engine/nn/attention/position_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <thread>

#include "headroom/nn/attention_parts.h"

namespace headroom::nn {
namespace position_table_test {

std::int64_t made = 0;

at::Tensor make(const c10::SymInt& first, const c10::SymInt& n, const PositionTable& table) {
  ++made;
  return sinusoids(first, n, table.width, table.base, at::kDouble).unsqueeze(0);
}

TEST(PositionTable, GivesTheRowsThatWereAskedForInAnyOrder) {
  const PositionTable table{make, 5, 100.0};
  for (const auto& [first, n] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 3}, {2, 1}, {-4, 5}, {-9, 2}, {1, 40}, {-70, 100}}) {
    for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
      for (const bool traced : {false, true}) {
        const at::Tensor rows = rows_of(table, first, n, type, traced);
        EXPECT_TRUE(rows.equal(sinusoids(first, n, 5, 100.0, at::kDouble).unsqueeze(0).to(type))) << first << " " << n;
      }
    }
  }
  EXPECT_FALSE(rows_of({make, 5, 10.0}, 0, 3, at::kDouble, false).equal(rows_of(table, 0, 3, at::kDouble, false)));
}

// YaRN by its equation: fast channels keep their frequency, slow ones are 4 times slower, those in between are mixed.
TEST(Rotary, YarnSlowsChannelsDown) {
  constexpr std::int64_t kWidth = 12;
  constexpr double kBase = 90.0, kFactor = 4.0, kLength = 12.0;
  const Rotary rotary{.channels = kWidth,
                      .base = kBase,
                      .scaling = {.rope_scaling = config::RopeScaling::yarn,
                                  .rope_factor = kFactor,
                                  .rope_original_length = 12,
                                  .rope_beta_fast = 1.5,
                                  .rope_beta_slow = 0.2,
                                  .rope_truncate = false}};
  const auto limit = [&](double beta) {
    return kWidth * std::log(kLength / (2.0 * M_PI * beta)) / (2.0 * std::log(kBase));
  };
  const double low = limit(1.5), high = limit(0.2);
  ASSERT_LT(0.0, low);
  ASSERT_LT(high, 5.0);
  const at::Tensor x =
      at::cat({at::ones({1, 1, 7, kWidth / 2}, at::kDouble), at::zeros({1, 1, 7, kWidth / 2}, at::kDouble)}, 3);
  const at::Tensor y = rotary(x, 3);
  for (std::int64_t c = 0; c < kWidth / 2; ++c) {
    const double ramp = std::clamp((static_cast<double>(c) - low) / (high - low), 0.0, 1.0);
    const double frequency = std::pow(kBase, -2.0 * static_cast<double>(c) / kWidth) * (1.0 - ramp + ramp / kFactor);
    for (std::int64_t i = 0; i < 7; ++i) {
      const double angle = static_cast<double>(3 + i) * frequency, size = 0.1 * std::log(kFactor) + 1.0;
      EXPECT_NEAR(y[0][0][i][c].item<double>(), size * std::cos(angle), 1e-12);
      EXPECT_NEAR(y[0][0][i][c + kWidth / 2].item<double>(), size * std::sin(angle), 1e-12);
    }
  }
}

// The frequencies of `rotary`, one for each pair of channels.
std::vector<double> frequencies_of(const Rotary& rotary) {
  const std::int64_t half = rotary.channels / 2;
  const at::Tensor x = at::cat({at::ones({1, 1, 1, half}, at::kDouble), at::zeros({1, 1, 1, half}, at::kDouble)}, 3);
  const at::Tensor y = rotary(x, 1).flatten();
  std::vector<double> frequencies;
  for (std::int64_t c = 0; c < half; ++c) {
    frequencies.push_back(std::atan2(y[c + half].item<double>(), y[c].item<double>()));
    EXPECT_NEAR(std::hypot(y[c + half].item<double>(), y[c].item<double>()), 1.0, 1e-12);
  }
  return frequencies;
}

TEST(Rotary, LinearScalingSlowsAllChannelsDown) {
  const Rotary rotary{
      .channels = 12, .base = 90.0, .scaling = {.rope_scaling = config::RopeScaling::linear, .rope_factor = 2.5}};
  const std::vector<double> frequencies = frequencies_of(rotary);
  for (std::size_t c = 0; c < frequencies.size(); ++c) {
    EXPECT_NEAR(frequencies[c], std::pow(90.0, -2.0 * static_cast<double>(c) / 12.0) / 2.5, 1e-12);
  }
}

// LLaMA 3.1 by its wavelengths: those below L / high stay, those above L / low are 4 times as long, others are mixed.
TEST(Rotary, Llama3SlowsLongWavesDown) {
  constexpr double kBase = 90.0, kFactor = 4.0, kLength = 60.0, kLow = 0.8, kHigh = 3.0;
  const Rotary rotary{.channels = 12,
                      .base = kBase,
                      .scaling = {.rope_scaling = config::RopeScaling::llama3,
                                  .rope_factor = kFactor,
                                  .rope_original_length = 60,
                                  .rope_low_freq_factor = kLow,
                                  .rope_high_freq_factor = kHigh}};
  const std::vector<double> frequencies = frequencies_of(rotary);
  std::array<int, 3> seen{};
  for (std::size_t c = 0; c < frequencies.size(); ++c) {
    const double before = std::pow(kBase, -2.0 * static_cast<double>(c) / 12.0), wave = 2.0 * M_PI / before;
    double expected = before;
    if (wave > kLength / kLow) {
      expected = before / kFactor;
      ++seen[0];
    } else if (wave >= kLength / kHigh) {
      const double smooth = (kLength / wave - kLow) / (kHigh - kLow);
      expected = (1.0 - smooth) * before / kFactor + smooth * before;
      ++seen[1];
    } else {
      ++seen[2];
    }
    EXPECT_NEAR(frequencies[c], expected, 1e-12);
  }
  EXPECT_TRUE(std::ranges::all_of(seen, [](int n) { return n > 0; }));
}

TEST(PositionTable, IsRebuiltRarelyAsASequenceGrows) {
  const PositionTable table{make, 7, 100.0};
  made = 0;
  rows_of(table, -99, 100, at::kFloat, false);
  for (int layer = 0; layer < 3; ++layer) {
    rows_of(table, -99, 100, at::kFloat, false);
    rows_of(table, -49, 50, at::kFloat, false);
  }
  EXPECT_EQ(made, 1);
  for (std::int64_t n = 101; n < 400; ++n) {
    rows_of(table, -99, n, at::kFloat, false);
  }
  EXPECT_EQ(made, 3);
}

TEST(PositionTable, ThreadsShareIt) {
  const PositionTable table{make, 9, 100.0};
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::int64_t n = 1; n < 50; ++n) {
        EXPECT_EQ(rows_of(table, -n * t, n, at::kFloat, false).size(1), n);
      }
    });
  }
}

}  // namespace position_table_test
}  // namespace headroom::nn
