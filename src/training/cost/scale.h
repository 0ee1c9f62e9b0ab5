// Scales a model to the size that a given amount of training is enough for.
#pragma once

#include <cstdint>
#include <optional>

#include "headroom/config/config.h"

namespace headroom::cost {

// Compute-optimal training tokens per parameter (Hoffmann et al.: Training Compute-Optimal Large Language Models,
// 2022).
inline constexpr std::int64_t kTokensPerParameter = 20;

// Factors of scaled() that largest_within() tries.
inline constexpr double kSmallestFactor = 1.0 / 16.0, kLargestFactor = 16.0;

// Multiply-accumulates of training per token, as executed (executed_cost()).
double training_macs_per_token(const config::Config& config);

// Returns `config` with `factor` times its widths and sqrt(factor) times its layers, rounded; nullopt if no such model
// exists.
std::optional<config::Config> scaled(const config::Config& config, double factor);

// Returns the largest scaled() model that `macs` multiply-accumulates train on kTokensPerParameter tokens per
// parameter; nullopt if all of them are too large, or all of them are smaller than that.
std::optional<config::Config> largest_within(const config::Config& config, double macs);

}  // namespace headroom::cost
