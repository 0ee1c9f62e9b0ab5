// Which sizes, batches and vocabularies fit a budget: rules on measured or counted numbers. Nothing is trained.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "headroom/config/config.h"

namespace headroom::advise {

// Compute-optimal tokens per active parameter if text is unlimited (Hoffmann et al.: Training Compute-Optimal Large
// Language Models, 2022).
inline constexpr double kTokensPerParameter = 20.0;

// R* of Muennighoff et al., Scaling Data-Constrained Language Models, 2023: the number of repeated epochs after which
// another one teaches next to nothing. No more are advised: small models would memorise the text.
inline constexpr double kEpochDecay = 15.4;
inline constexpr double kMostEpochs = kEpochDecay;
// Up to here repeated text is nearly as good as new text (same paper). Beyond, the model gets dropout.
inline constexpr double kEpochsWithoutDropout = 4.0;
inline constexpr double kDropout = 0.2;

// The number of tokens of new text that would teach as much as D = `tokens` of a text of U = `text_tokens` that is
// repeated: U + U R (1 - exp(-(D / U - 1) / R)) with R = kEpochDecay (same paper).
double effective_tokens(double tokens, double text_tokens);

// The share of the fastest batch's tokens per second that a smaller batch may lose.
inline constexpr double kLostToBatch = 0.2;

// The share of the budget for the training steps of the run. The rest is for pilot runs, validations and checkpoints.
inline constexpr double kRunShare = 0.88;

// Executed multiply-accumulates of a forward pass per token, about the number of active parameters.
double forward_macs(const config::Config& config);

// `config` with `factor` times its widths and sqrt(factor) times its layers, rounded as its parts require; nothing if
// there is no such model.
std::optional<config::Config> scaled(const config::Config& config, double factor);

// Factors for scaled(), ascending.
const std::vector<double>& size_factors();

// The index of the model that fits `macs` of training (three times forward per token) on a text of `text_tokens`.
// `forward` holds the forward multiply-accumulates N per token of each model. Minimises N^-a + (D' /
// kTokensPerParameter)^-a, to which the reducible loss is proportional, with a = 0.35 and D' the effective tokens (both
// papers above).
std::size_t best_size(const std::vector<double>& forward, double macs, double text_tokens);

// The index of the smallest batch that is about as fast as the fastest; batches are in ascending order.
std::size_t best_batch(const std::vector<double>& tokens_per_second);

// Up to four vocabulary sizes, ascending, each twice the one before. The largest is at most twice `own` and small
// enough that the text has examples of each token.
std::vector<std::int64_t> vocabulary_sizes(std::int64_t own, double text_bytes);

// To two significant digits: 1234 is 1200. Numbers below 100 are rounded down to integers.
std::int64_t rounded_down(double number);

}  // namespace headroom::advise
