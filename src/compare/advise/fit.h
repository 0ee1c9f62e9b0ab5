// Which sizes, batches and vocabularies suit a budget: rules on numbers that were measured or counted, nothing trained.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "headroom/config/config.h"

namespace headroom::compare {

// Tokens for each parameter that a token meets, which a fixed amount of computation is best spent on (Hoffmann et al.:
// Training Compute-Optimal Large Language Models, 2022).
inline constexpr double kTokensAParameter = 20.0;

// How often a text can be read before another reading brings next to nothing: four readings are nearly as good as new
// text, from about sixteen on little is left (Muennighoff et al.: Scaling Data-Constrained Language Models, 2023).
inline constexpr double kMostReadings = 16.0;

// The smallest batch that suits loses no more than this share of the tokens per second.
inline constexpr double kLostToBatch = 0.1;

// Of the budget, for the training steps of the run: the rest is for trials, validations and checkpoints.
inline constexpr double kRunShare = 0.88;

// Multiply-accumulates of a token's way forward, over the whole model, as executed: about the parameters it meets.
double forward_macs(const config::Config& config);

// `config` with widths `factor` times its own and layers by the root of that, in the steps that its parts allow; nothing
// where no such model can be.
std::optional<config::Config> scaled(const config::Config& config, double factor);

// Factors for scaled(), ascending.
const std::vector<double>& size_factors();

// Of models with so many forward multiply-accumulates a token, ascending, the one that suits `macs` for all training
// (three times forward a token) on a text of so many tokens: for which there are about kTokensAParameter tokens, and
// which reads the text kMostReadings times at most; the largest where all read it more often.
std::size_t fitting_size(const std::vector<double>& forward, double macs, double text_tokens);

// Of batches, smallest first, with so many tokens a second: the smallest that is about as fast as the fastest.
std::size_t fitting_batch(const std::vector<double>& tokens_per_second);

// Four sizes, each twice the one before, of which the largest is at most twice `own`, and few enough that a text of so
// many bytes has examples of each piece; ascending. Fewer for a small text.
std::vector<std::int64_t> vocabulary_sizes(std::int64_t own, double text_bytes);

// Two digits: 1234 is 1200.
std::int64_t rounded_down(double number);

}  // namespace headroom::compare
