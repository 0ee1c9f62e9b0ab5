// Which sizes, batches and vocabularies suit a budget: rules on numbers that were measured or counted, nothing trained.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "headroom/config/config.h"

namespace headroom::compare {

// Tokens for each parameter that a token meets, which a fixed amount of computation is best spent on where text never
// runs out (Hoffmann et al.: Training Compute-Optimal Large Language Models, 2022).
inline constexpr double kTokensAParameter = 20.0;

// What further readings of a text still teach fades away with so many of them (the paper below); beyond that small
// models learn it by heart instead: they are not advised.
inline constexpr double kFadingReadings = 15.4;
inline constexpr double kMostReadings = kFadingReadings;
// A text that is read more often than this wants dropout: nearly as good as new text up to here (the paper below).
inline constexpr double kReadingsWithoutDropout = 4.0;
inline constexpr double kDropout = 0.2;

// So many tokens of new text would teach what `tokens` teach of a text that has `text_tokens` and is read again and
// again: U + U R (1 - exp(-(D / U - 1) / R)), with R = kFadingReadings (Muennighoff et al.: Scaling Data-Constrained
// Language Models, 2023).
double worth_of(double tokens, double text_tokens);

// The smallest batch that suits loses no more than this share of the tokens per second.
inline constexpr double kLostToBatch = 0.2;

// Of the budget, for the training steps of the run: the rest is for trials, validations and checkpoints.
inline constexpr double kRunShare = 0.88;

// Multiply-accumulates of a token's way forward, over the whole model, as executed: about the parameters it meets.
double forward_macs(const config::Config& config);

// `config` with widths `factor` times its own and layers by the root of that, in the steps that its parts allow;
// nothing where no such model can be.
std::optional<config::Config> scaled(const config::Config& config, double factor);

// Factors for scaled(), ascending.
const std::vector<double>& size_factors();

// Of models with so many forward multiply-accumulates N a token the one that suits `macs` for all training (three times
// forward a token) on a text of so many tokens: it has the least N^-a + (D' / kTokensAParameter)^-a, to which the loss
// above its limit is proportional; a = 0.35, and D' is what the tokens are worth (both papers above).
std::size_t fitting_size(const std::vector<double>& forward, double macs, double text_tokens);

// Of batches, smallest first, with so many tokens a second: the smallest that is about as fast as the fastest.
std::size_t fitting_batch(const std::vector<double>& tokens_per_second);

// Four sizes, each twice the one before, of which the largest is at most twice `own`, and few enough that a text of so
// many bytes has examples of each piece; ascending. Fewer for a small text.
std::vector<std::int64_t> vocabulary_sizes(std::int64_t own, double text_bytes);

// Two digits: 1234 is 1200.
std::int64_t rounded_down(double number);

}  // namespace headroom::compare
